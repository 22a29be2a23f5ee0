"""A plugin for Wireshark and tshark: the definition pages, and a dissector written in Lua.

- `definitions`: the pages as Lua tables.
- `plugin`: the whole file. It joins the tables and the parts in the folder `lua`.
"""
