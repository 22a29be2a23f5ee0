"use strict";
// Text from the capture becomes text of the page (textContent) or data of Vega, never markup.

const { charts, tables, config } = JSON.parse(document.getElementById("data").textContent);
const PAGE_ROWS = 50;
const root = document.documentElement;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Colours are variables of the style sheet, so a change of theme needs no drawing.
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

// A chart is drawn when it comes near the screen: what is never looked at takes no time.
const begun = new WeakSet();
async function draw(place) {
  if (begun.has(place)) return;
  begun.add(place);
  const spec = charts[place.dataset.chart];
  await vegaEmbed(place, spec, {
    actions: false,
    ast: true, // expressions are interpreted: the page forbids eval
    config: { ...config, legend: { ...config.legend, columns: Math.ceil(place.clientWidth / 180) } },
    renderer: "svg",
  });
  place.style.minHeight = "";
  place.after(dataOf(spec));
  place.dataset.drawn = "yes";
}
const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      near.unobserve(entry.target);
      draw(entry.target);
    }
  },
  { rootMargin: "400px" },
);
for (const place of document.querySelectorAll("[data-chart]")) near.observe(place);
addEventListener("beforeprint", () => document.querySelectorAll("[data-chart]:not([data-drawn])").forEach(draw));

// The numbers behind a chart, for whoever cannot see it.
function dataOf(spec) {
  const [rows] = Object.values(spec.datasets);
  const names = Object.keys(rows[0]).filter((name) => !["x", "y", "step", "link", "until"].includes(name));
  const once = "step" in rows[0] ? rows.filter((row) => row.step === 0) : rows;
  const columns = names.map((name) => ({ name, meaning: "", kind: kindOf(name, once) }));
  const values = once.map((row) => columns.map(({ name, kind }) => (kind === "time" && row[name] !== null ? row[name] * 1000 : row[name])));
  const details = element("details", {}, element("summary", { textContent: "The numbers of this chart" }));
  details.addEventListener("toggle", () => {
    if (details.children.length === 1) details.append(tableOf("The numbers of this chart", { columns, rows: values, total: values.length }));
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
  // An id, a packet or an offset is to be copied, not to be read as an amount.
  if (kind === "integer") return /(_id|packet|offset|partition|code|version|epoch|generation)$/.test(name) ? String(value) : integer.format(value);
  if (kind === "number") return number.format(value);
  return value;
}

// A table that sorts and filters: all its rows are here, and of those that fit some are in the page.
function tableOf(title, { columns, rows, total }) {
  const texts = rows.map((row) => row.map((value, index) => cellText(value, columns[index])));
  let order = rows.map((_, index) => index);
  let shown = PAGE_ROWS;
  const body = element("tbody");
  const info = element("span", { className: "info" });
  info.setAttribute("role", "status");
  const filter = element("input", { type: "search", placeholder: "part of any column" });
  const more = element("button", { type: "button" });
  const heads = columns.map((column, index) => {
    const button = element("button", { type: "button", textContent: column.name.replaceAll("_", " "), title: column.meaning });
    const head = element("th", { scope: "col", className: isNumber(column) ? "number" : "" }, button);
    button.addEventListener("click", () => sort(index, head));
    return head;
  });

  function isNumber({ kind }) { return kind === "number" || kind === "integer"; }
  function sort(index, head) {
    const up = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "descending" : !isNumber(columns[index]);
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => rows[row][index];
    order.sort((a, b) => {
      if (key(a) === null || key(b) === null) return (key(a) === null) - (key(b) === null); // last, either way
      const sign = key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
      return up ? sign : -sign;
    });
    show();
  }
  function show() {
    const wanted = filter.value.toLowerCase();
    const fit = wanted ? order.filter((row) => texts[row].some((text) => text.toLowerCase().includes(wanted))) : order;
    const lines = fit.slice(0, shown).map((row) =>
      element("tr", {}, ...texts[row].map((text, index) =>
        element("td", { textContent: text, title: text.length > 40 ? text : "", className: isNumber(columns[index]) ? "number" : "" }))));
    body.replaceChildren(...lines);
    const here = rows.length < total ? `the first ${integer.format(rows.length)} of ${integer.format(total)}` : integer.format(total);
    info.textContent = fit.length < rows.length ? `${integer.format(fit.length)} of ${here} rows` : `${here} ${total === 1 ? "row" : "rows"}`;
    more.hidden = fit.length <= shown;
    more.textContent = `Show ${integer.format(Math.min(fit.length - shown, PAGE_ROWS * 10))} more`;
  }
  filter.addEventListener("input", () => { shown = PAGE_ROWS; show(); });
  more.addEventListener("click", () => { shown += PAGE_ROWS * 10; show(); });
  const scroll = element("div", { className: "scroll", tabIndex: 0 },
    element("table", {}, element("caption", { textContent: title }), element("thead", {}, element("tr", {}, ...heads)), body));
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  const tools = element("div", { className: "tools" }, element("label", {}, "Filter ", filter), info);
  tools.hidden = rows.length < 2;
  show();
  const whole = element("div", {}, tools, scroll, more);
  return whole;
}
for (const place of document.querySelectorAll("[data-table]")) {
  const title = place.closest("section").querySelector("h2").textContent;
  place.append(tableOf(title, tables[place.dataset.table]));
}
