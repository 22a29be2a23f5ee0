"use strict";
// Text from the capture becomes textContent or data for Vega, never markup.

const { charts, tables, config, span } = JSON.parse(document.getElementById("data").textContent);
const PAGE_ROWS = 50;
const root = document.documentElement;

function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

// Colours are CSS variables, so a change of theme does not redraw charts.
const themeButton = document.getElementById("theme");
function setTheme(dark) {
  root.dataset.theme = dark ? "dark" : "light";
  root.style.colorScheme = root.dataset.theme;
  themeButton.textContent = dark ? "Light" : "Dark";
}
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
setTheme(prefersDark.matches);
prefersDark.addEventListener("change", (event) => setTheme(event.matches));
themeButton.addEventListener("click", () => setTheme(root.dataset.theme !== "dark"));

// The time range of the page, in ms since 1970. Charts and tables register to follow it.
const followers = [];
let range = span;
function onRange(follow) {
  followers.push(follow);
  if (range && range !== span) follow(...range);
}
function isTimed(spec) {
  return spec.params?.some((param) => param.name === "from") ?? false;
}
const rangeForm = document.getElementById("range");
function setRange() {
  const [from, to] = ["from", "to"].map((name) => span[0] + ((span[1] - span[0]) * document.getElementById(name).value) / 1000);
  const isWhole = from === span[0] && to === span[1];
  range = isWhole ? span : [from, to];
  const iso = range.map((ms) => new Date(Math.round(ms)).toISOString());
  const isOneDay = iso[0].slice(0, 10) === iso[1].slice(0, 10);
  rangeForm.querySelector("output").textContent = iso.map((text) => text.slice(isOneDay ? 11 : 0, 23).replace("T", " ")).join(" to ");
  rangeForm.querySelector("button").hidden = rangeForm.querySelector("p").hidden = isWhole;
  const command = rangeForm.querySelector("code");
  command.textContent = `${command.dataset.command} --since ${iso[0]} --until ${iso[1]}`;
  root.classList.toggle("part", !isWhole);
  for (const follow of followers) follow(...range);
}
if (rangeForm) {
  const [from, to] = rangeForm.querySelectorAll("input");
  from.addEventListener("input", () => { from.value = Math.min(from.value, to.value - 1); setRange(); });
  to.addEventListener("input", () => { to.value = Math.max(to.value, Number(from.value) + 1); setRange(); });
  rangeForm.addEventListener("reset", () => setTimeout(setRange)); // after the inputs have their values
  rangeForm.addEventListener("submit", (event) => event.preventDefault());
  setRange();
}

// A chart is drawn when it scrolls near the screen, so unseen charts take no time.
const started = new WeakSet();
async function draw(place) {
  if (started.has(place)) return;
  started.add(place);
  const spec = charts[place.dataset.chart];
  const { view } = await vegaEmbed(place, spec, {
    actions: false,
    ast: true, // expressions are interpreted: the page forbids eval
    config: { ...config, legend: { ...config.legend, columns: legendColumns(spec, place.clientWidth) } },
    renderer: "svg",
  });
  if (isTimed(spec)) {
    // Without rows in the range, Vega warns about axes without values.
    onRange((from, to) => view.logLevel(1).signal("from", from).signal("to", to).runAsync());
    place.closest("figure").classList.add("timed");
  }
  place.style.minHeight = "";
  place.after(dataOf(spec));
  place.dataset.drawn = "yes";
}
const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries.filter((entry) => entry.isIntersecting)) {
      near.unobserve(entry.target);
      draw(entry.target);
    }
  },
  { rootMargin: "400px" },
);
for (const place of document.querySelectorAll("[data-chart]")) near.observe(place);
addEventListener("beforeprint", () => document.querySelectorAll("[data-chart]:not([data-drawn])").forEach(draw));

// As many columns as the longest name has room for, at most 260 pixels of it.
function legendColumns(spec, width) {
  const names = [spec, ...(spec.layer ?? [])].flatMap((part) => part.encoding?.color?.scale?.domain ?? []);
  const longest = Math.max(12, ...names.map((name) => String(name).length));
  return Math.max(1, Math.floor(width / (Math.min(longest * 7, 260) + 26)));
}

// The data of a chart as a table, for screen readers.
function dataOf(spec) {
  const [rows] = Object.values(spec.datasets);
  const names = Object.keys(rows[0]).filter((name) => !["x", "y", "step", "link", "until"].includes(name));
  const unique = "step" in rows[0] ? rows.filter((row) => row.step === 0) : rows; // curves have many points
  const columns = names.map((name) => ({ name, meaning: "", kind: kindOf(name, unique) }));
  const values = unique.map((row) => columns.map(({ name, kind }) => (kind === "time" && row[name] !== null ? row[name] * 1000 : row[name])));
  const details = element("details", {}, element("summary", { textContent: "Data of this chart" }));
  details.addEventListener("toggle", () => {
    if (details.children.length === 1) details.append(tableOf("Data of this chart", { columns, rows: values, total: values.length }));
  });
  return details;
}
function kindOf(name, rows) {
  if (name.endsWith("time")) return "time";
  const values = rows.map((row) => row[name]).filter((value) => value !== null);
  if (values.some((value) => typeof value === "string")) return "text";
  return values.every(Number.isInteger) ? "integer" : "number";
}

function timeText(us) {
  const iso = new Date(Math.floor(us / 1000)).toISOString();
  return `${iso.slice(0, 10)} ${iso.slice(11, 23)}${String(Math.floor(us) % 1000).padStart(3, "0")}`;
}
const integer = new Intl.NumberFormat("en");
const number = new Intl.NumberFormat("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
function cellText(value, { kind, name }) {
  if (value === null) return "–";
  if (kind === "time") return timeText(value);
  if (kind === "flag") return value ? "yes" : "no";
  // Ids, packet numbers and offsets are identifiers, so they have no digit grouping.
  if (kind === "integer") return /(_id|packet|offset|partition|code|version|epoch|generation)$/.test(name) ? String(value) : integer.format(value);
  if (kind === "number") return number.format(value);
  return value;
}

// A table that sorts and filters. It holds all rows; the page has the first matching ones.
function tableOf(title, { columns, rows, total }) {
  const texts = rows.map((row) => row.map((value, index) => cellText(value, columns[index])));
  let order = rows.map((_, index) => index);
  let shown = PAGE_ROWS;
  const body = element("tbody");
  const info = element("span", { className: "info" });
  info.setAttribute("role", "status");
  const filter = element("input", { type: "search", placeholder: "text in any column" });
  const moreButton = element("button", { type: "button" });
  const heads = columns.map((column, index) => {
    const button = element("button", { type: "button", textContent: column.name.replaceAll("_", " "), title: column.meaning });
    const head = element("th", { scope: "col", className: isNumber(column) ? "number" : "" }, button);
    button.addEventListener("click", () => sort(index, head));
    return head;
  });

  const timed = columns.flatMap(({ kind }, index) => (kind === "time" ? [index] : []));
  let inRange = () => true;
  onRange((from, to) => {
    inRange = (row) => {
      const times = timed.map((index) => rows[row][index]).filter((time) => time !== null).map((us) => us / 1000);
      return !times.length || (Math.min(...times) <= to && Math.max(...times) >= from);
    };
    show();
  });
  function isNumber({ kind }) { return kind === "number" || kind === "integer"; }
  function sort(index, head) {
    const up = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "descending" : !isNumber(columns[index]);
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => rows[row][index];
    order.sort((a, b) => {
      if (key(a) === null || key(b) === null) return (key(a) === null) - (key(b) === null); // null is last in both orders
      const sign = key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
      return up ? sign : -sign;
    });
    show();
  }
  function show() {
    const pattern = filter.value.toLowerCase();
    const matching = order.filter((row) => inRange(row) && (!pattern || texts[row].some((text) => text.toLowerCase().includes(pattern))));
    const lines = matching.slice(0, shown).map((row) =>
      element("tr", {}, ...texts[row].map((text, index) =>
        element("td", { textContent: text, title: text.length > 40 ? text : "", className: isNumber(columns[index]) ? "number" : "" }))));
    body.replaceChildren(...lines);
    const count = rows.length < total ? `the first ${integer.format(rows.length)} of ${integer.format(total)}` : integer.format(total);
    info.textContent = matching.length < rows.length ? `${integer.format(matching.length)} of ${count} rows` : `${count} ${total === 1 ? "row" : "rows"}`;
    moreButton.hidden = matching.length <= shown;
    moreButton.textContent = `Show ${integer.format(Math.min(matching.length - shown, PAGE_ROWS * 10))} more`;
  }
  filter.addEventListener("input", () => { shown = PAGE_ROWS; show(); });
  moreButton.addEventListener("click", () => { shown += PAGE_ROWS * 10; show(); });
  const scroll = element("div", { className: "scroll", tabIndex: 0 },
    element("table", {}, element("caption", { textContent: title }), element("thead", {}, element("tr", {}, ...heads)), body));
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  const tools = element("div", { className: "tools" }, element("label", {}, "Filter ", filter), info);
  if (!timed.length) tools.append(element("span", { className: "whole", textContent: "whole capture" }));
  tools.hidden = rows.length < 2 && timed.length;
  show();
  return element("div", {}, tools, scroll, moreButton);
}
for (const place of document.querySelectorAll("[data-table]")) {
  const title = place.closest("section").querySelector("h2").textContent;
  place.append(tableOf(title, tables[place.dataset.table]));
}
