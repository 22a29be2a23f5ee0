"""Security: connections without encryption, clear-text credentials, failed logins, denied requests.

    $ kafka-dissector security captures/kafka-4-guarded.pcap.zst

**How to read it.** A row is a finding about a client, most serious first:

- clear password: PLAIN without TLS. The capture contains the password.
- clear token: OAUTHBEARER without TLS. The capture contains the token.
- failed login: a SASL authentication that the broker refused.
- denied request: an authorization error; `resource` is the topic, group or transactional id. Also
  requests about delegation tokens of other users, or from a login that may not send them.
- offline attack: SCRAM without TLS. The capture is enough to try passwords (RFC 5802, section 9).
- not encrypted: neither TLS nor SASL.
- old TLS: TLS 1.1 or older.
- weak cipher: no forward secrecy (key exchange by RSA), or CBC, 3DES or RC4.

A client without a finding uses encryption; it has a row with a null `finding`.

**What to do.** Use SASL_SSL or SSL listeners, also between brokers, and close the others. Change
passwords that a capture contains. Repeated failed logins indicate a client with an old password, or
an attack; `client` is its address. Denied requests indicate missing ACLs, or an application that
tries to use topics of other applications.

**How it is computed.** The mechanism is that of SaslHandshake, and the TLS version and cipher are
those of the handshake. Failed logins and denied requests are error codes in responses. Requests do
not contain the principal, so the client id is shown instead. Connections between brokers are
included. A connection that ends before its login has no row if others to the same listener use
SASL.

**Limitations.** In connections that were not decrypted, only the TLS version and cipher are
visible, and the client id is null. GSSAPI may encrypt by itself. A connection that began
before the capture looks as if it did not use SASL, because its mechanism is not in the capture.
Clients older than Kafka 1.0 get no error if their login fails; the broker closes the connection.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, select
from analysis.columns import Column, columns_of, first_and_last
from analysis.sql.expressions import CLIENT_IDS, SECURITY_PROTOCOL, SOFTWARE, by_frequency, literal

DENIED: Final = "(29, 30, 31, 53, 63, 64, 65)"
"""TOPIC, GROUP, CLUSTER and TRANSACTIONAL_ID_AUTHORIZATION_FAILED; of delegation tokens
OWNER_MISMATCH, REQUEST_NOT_ALLOWED and AUTHORIZATION_FAILED."""

FAILED_LOGIN: Final = "(33, 34, 58)"
"""UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED."""

FINDINGS: Final = (
    "clear password", "clear token", "failed login", "denied request", "offline attack",
    "not encrypted", "old TLS", "weak cipher",
)  # fmt: skip
"""The most serious first."""


@answer(
    question="Which connections are unprotected, which logins fail, and which requests are denied?",
    place=19,
    tables=("connections", "exchanges", "errors"),
    rows="connections",
    columns=(
        Column("finding", "string", "kind of the finding; null if there is none"),
        *columns_of("exchanges", "client_id"),
        Column("client", "string", "address of the client"),
        Column("protocol", "string", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        Column("mechanism", "string", "SASL mechanisms, the most frequent first"),
        Column("tls_version", "string", "TLS versions, the most frequent first"),
        Column("resource", "string", "denied requests: API and the resource"),
        Column("error", "string", "name of the error code"),
        Column("message", "string", "most frequent error message of the broker"),
        Column("count", "int64", "connections; failed logins or denied requests"),
        Column("brokers", "int64", "addresses of brokers"),
        Column("software", "string", "software of the client, the most frequent first"),
        *first_and_last("of them"),
    ),
    essential="finding client_id client count mechanism resource",
    useful="error protocol tls_version last_time message",
    lists_problems=True,
)  # fmt: skip
def security(tables: Tables) -> ArrowTable:
    """Findings about clients, the most serious first."""
    rank = f"list_position([{', '.join(map(literal, FINDINGS))}], finding)"
    query = f"""
      from (select finding, client_id, client, protocol, resource, error,
        {by_frequency("sasl_mechanism")} as mechanism,
        {by_frequency("tls_version")} as tls_version,
        {by_frequency("client_software")} as software,
        mode(message) as message, count(*) as count,
        count(distinct (broker_ip, broker_port)) as brokers,
        min(time) as first_time, max(time) as last_time
      from ({_FINDINGS}) group by all)
      order by coalesce({rank}, {len(FINDINGS) + 1}), count desc, client_id, client, resource"""
    return select(tables, query)


_LINKS: Final = f"""
  select connections.*, client_id, client_ip as client, client_software,
    {SECURITY_PROTOCOL} as listener
  from connections left join {CLIENT_IDS} using (connection_id)
    left join {SOFTWARE} using (connection_id)
  where protocol in ('kafka', 'tls')"""
"""A query for connections, each with its client and security protocol."""

_WITHOUT_TOKEN: Final = """
  select connection_id from errors where api = 'SaslHandshake'
  union
  select connection_id from exchanges join connections using (connection_id)
  where sasl_mechanism is null and (exchanges.broker_ip, exchanges.broker_port) in (
    select (broker_ip, broker_port) from connections where sasl_mechanism is not null)
  group by connection_id having bool_and(api = 'ApiVersions')
  except select connection_id from exchanges where api in ('SaslAuthenticate', 'SaslToken')"""
"""A query for connections without a SASL token: the broker refused the mechanism, or the client
requested the versions of a listener with SASL and closed the connection before its login."""

_FINDINGS: Final = f"""
  with links as ({_LINKS}),
  -- A request for several partitions is refused once for each topic.
  refused as (
    select distinct connection_id, correlation_id, time, error, error_message, api, error_code,
      case when error_code in {FAILED_LOGIN} then 'failed login' else 'denied request' end as kind,
      coalesce(errors.topic, resource, group_id, transactional_id) as name
    from errors left join (
      select connection_id, correlation_id, response_time as time,
        arg_min(group_id, nth) as group_id, arg_min(transactional_id, nth) as transactional_id
      from exchanges where error_count > 0 group by all)
      using (connection_id, correlation_id, time)
    where error_code in {FAILED_LOGIN} or error_code in {DENIED})
  select links.* replace (listener as protocol), first_time as time, null as resource,
    null as error, null as message,
    case
      when listener = 'SASL_PLAINTEXT' and sasl_mechanism = 'PLAIN' then 'clear password'
      when listener = 'SASL_PLAINTEXT' and sasl_mechanism = 'OAUTHBEARER' then 'clear token'
      when listener = 'SASL_PLAINTEXT' and sasl_mechanism like 'SCRAM%' then 'offline attack'
      when listener = 'PLAINTEXT' then 'not encrypted'
      when tls_version not in ('1.2', '1.3') then 'old TLS'
      when starts_with(tls_cipher, 'TLS_RSA_') or contains(tls_cipher, '_CBC_')
        or contains(tls_cipher, '3DES') or contains(tls_cipher, 'RC4') then 'weak cipher'
    end as finding
  from links
  where ends_with(listener, 'SSL') or connection_id not in ({_WITHOUT_TOKEN})
  union all by name
  select links.* replace (listener as protocol), refused.time,
    case when kind = 'denied request' then api || coalesce(' ' || name, '') end as resource, error,
    error_message as message, kind as finding
  from refused join links using (connection_id)"""
"""A query: a row for each connection with its finding, each failed login, each denied request."""
