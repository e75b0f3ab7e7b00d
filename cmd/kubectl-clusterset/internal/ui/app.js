// The page of kubectl clusterset ui. It shows a view, which comes with the file or from a server, and changes nothing.
// Text of others gets into the document as text nodes only.
"use strict";

const $ = (id) => document.getElementById(id);
const MARK = { error: "✕", warning: "▲", "": "●" };
const GRID = 12; // clusters that have columns of their own; of more, each name lists those that export it
const MAP = 8; // clusters on the map; of more, a table has those that do not reach somebody
const SHOWN = 8; // findings at first

let view = null; // what is shown
let explained = null; // by name, in a file
let ahead = 0; // of the hub's clock, in ms; a file's clock stands
let stands = 0; // the time of a file, in ms
let rows = []; // the names that match the filter
let all = false; // all findings are shown
let opened = ""; // the name that is explained

// make returns an element with attributes and children. No attribute is named style: the page's policy forbids it.
function make(tag, attributes, ...children) {
  const svg = ["svg", "line", "circle", "rect", "path", "text", "title"].includes(tag);
  const out = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) out.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) out.setAttribute(key, value);
  }
  out.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return out;
}

const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const now = () => stands || Date.now() + ahead;

function age(at) {
  const s = Math.max(0, Math.round((now() - Date.parse(at)) / 1000));
  if (s < 120) return `${s}s`;
  if (s < 7200) return `${Math.floor(s / 60)}m`;
  return s < 172800 ? `${Math.floor(s / 3600)}h` : `${Math.floor(s / 86400)}d`;
}

// stamp is a time as findings have it.
const stamp = (ms) => new Date(ms).toISOString().slice(0, 19) + "Z";

// aged is an age that goes on.
const aged = (at, before, after) => make("span", { "data-at": at, "data-before": before, "data-after": after || "" },
  before + age(at) + (after || ""));

function tick() {
  for (const e of document.querySelectorAll("[data-at]")) {
    e.textContent = e.dataset.before + age(e.dataset.at) + e.dataset.after;
  }
  if (view) $("about").replaceChildren(about(), make("time", {}, stamp(now())));
}

const mark = (level) => make("span", { class: "mark", "aria-hidden": "true" }, MARK[level || ""]);
const kind = (level) => level || "well";

// part calls draw if what it shows is another than at the last time, so that focus and selection stay.
const drawn = {};
function part(name, data, draw) {
  const key = JSON.stringify(data);
  if (drawn[name] === key) return;
  drawn[name] = key;
  draw();
}

function show(next) {
  view = next;
  for (const n of view.names) n.text = "";
  const tally = { error: 0, warning: 0 };
  for (const f of view.findings) tally[f.severity]++;
  document.title = (tally.error ? `✕ ${tally.error} ` : tally.warning ? `▲ ${tally.warning} ` : "") +
    `ClusterSet ${view.clusterSet || ""}`;
  $("title").textContent = view.clusterSet ? `ClusterSet ${view.clusterSet}` : "No ClusterSet";
  part("result", [tally, view.lacks, view.failed], () => result(tally));
  const ageless = view.clusters.map((c) => ({ ...c, lastSeen: undefined }));
  part("clusters", ageless, clusters);
  for (const c of view.clusters) {
    const e = document.querySelector(`[data-seen="${CSS.escape(c.cluster)}"]`);
    if (e && c.lastSeen) e.dataset.at = c.lastSeen;
  }
  part("findings", [view.findings, all], findings);
  part("reach", [view.hubUnread, ageless.map((c) => [c.cluster, c.level, c.state, c.unreachableFrom])], reach);
  part("names", [view.names, view.clusters.map((c) => [c.cluster, c.level, c.state])], filter);
  if (opened && $("explain").open) explain(opened);
  tick();
}

function about() {
  const from = view.cluster ? `seen from ${view.cluster}` : "seen from the hub";
  return `${count(view.clusters.length, "cluster")}, ${count(view.names.length, "name")}, ${from}, ${stands ? "as of" : "live,"} `;
}

function result(tally) {
  const out = [];
  for (const level of ["error", "warning"]) {
    if (tally[level]) out.push(make("span", { class: level }, mark(level), count(tally[level], level)));
  }
  if (!out.length) out.push(make("span", { class: "well" }, "✓ No findings"));
  if (view.lacks) out.push(make("span", {}, `Not all was read, for lack of rights: ${view.lacks.join(", ")}`));
  if (view.failed) out.push(make("span", {}, `Not all was read: ${view.failed.join("; ")}`));
  $("result").replaceChildren(...out);
}

// Clusters: a tile each. Of many, those that are live are listed below.
function clusters() {
  const sorted = view.clusters.map((c, i) => [c, i]).sort((a, b) => rank(a[0].level) - rank(b[0].level) || a[1] - b[1]);
  const tiles = sorted.filter(([c], i) => c.level ? i < 24 : view.clusters.length <= GRID).map(([c]) => c);
  $("clusters").replaceChildren(...tiles.map((c) => make("li", {}, make("button", {
    type: "button", class: kind(c.level), "data-cluster": c.cluster, "data-state": c.state,
    title: `Show the names of ${c.cluster}${c.kubernetes ? `, Kubernetes ${c.kubernetes}` : ""}`, onclick: () => { $("filter").value = c.cluster; filter(); },
  },
  make("b", {}, c.cluster + (c.here ? " (this cluster)" : "")),
  make("span", { class: "state " + kind(c.level) }, mark(c.level), c.state),
  ...(c.joined ? [
    make("span", { class: "quiet" }, [count(c.exports, "export"), count(c.endpoints, "endpoint")].join(", ")),
    make("span", { class: "quiet" }, seen(c))] : []))))); // of others, nothing is known
  const rest = sorted.map(([c]) => c).filter((c) => !tiles.includes(c));
  $("well").hidden = !rest.length;
  const bad = rest.filter((c) => c.level).length, live = rest.every((c) => c.state === "live");
  $("well").querySelector("summary").textContent = count(rest.length, "other cluster") +
    (bad ? `, ${bad} with findings` : live ? ", all live" : "");
  $("well").querySelector("ul").replaceChildren(...rest.map((c) => make("li", { class: c.level || "" },
    mark(c.level), c.cluster, c.state === "live" ? "" : ` ${c.state}`)));
}

const rank = (level) => ["error", "warning", ""].indexOf(level || "");

function seen(c) {
  if (!c.lastSeen) return "never seen by the hub";
  const out = aged(c.lastSeen, "seen ", " ago");
  out.dataset.seen = c.cluster;
  return out;
}

function findings() {
  const some = all ? view.findings : view.findings.slice(0, SHOWN);
  $("findings").replaceChildren(...some.map(finding));
  if (!some.length) $("findings").append(make("li", { class: "quiet" }, "Nothing, as far as was read."));
  $("more").hidden = view.findings.length <= SHOWN;
  $("more").textContent = all ? "Show fewer" : `Show all ${view.findings.length}`;
}

function finding(f) {
  return make("li", { "data-check": f.check },
    make("span", { class: "level " + f.severity }, mark(f.severity), f.severity),
    make("div", { class: "what" }, f.what, make("div", { class: "step" }, ...(f.remedy ? step(f.remedy) : []),
      f.url ? make("a", { href: f.url, target: "_blank", rel: "noreferrer" }, "What this means") : null)));
}

// step returns where a command is run, the command, and what copies it.
function step(text) {
  const [, where, command] = /^((?:in cluster [^ ]+|on the hub): )?(.*)$/s.exec(text);
  const code = make("code", {}, command);
  const button = make("button", { type: "button", "aria-label": `Copy: ${command}`, onclick: () => {
    const said = (word) => { button.textContent = word; setTimeout(() => { button.textContent = "Copy"; }, 2000); };
    const select = () => { getSelection().selectAllChildren(code); said("Selected"); };
    if (navigator.clipboard) navigator.clipboard.writeText(command).then(() => said("Copied"), select);
    else select();
  } }, "Copy");
  return [where ? make("span", {}, where) : null, code, button];
}

// Reach: what live members say that they do not reach. Nobody says that a member is reached: silence is consent.
function reach() {
  const members = view.clusters.filter((c) => c.joined);
  const missing = members.flatMap((c) => Object.entries(c.unreachableFrom || {}).map(([from, since]) => ({ from, to: c.cluster, since })));
  const well = make("p", { class: "quiet" }, view.hubUnread ? "The hub was not read, so members are not shown." :
    members.length > 1 ? "No member reports one that it does not reach." : "There are no two members.");
  const list = make("ul", {}, ...missing.slice(0, 12).map((m) => make("li", {},
    make("span", { class: "error" }, mark("error")), `${m.from} does not reach ${m.to}, `, aged(m.since, "for "))));
  if (missing.length > 12) list.append(make("li", { class: "quiet" }, `and ${missing.length - 12} more`));
  if (members.length > MAP) $("reach").replaceChildren(missing.length ? matrix(missing) : well);
  else $("reach").replaceChildren(...(members.length > 1 ? [map(members, missing)] : []), missing.length ? list : well);
}

function map(members, missing) {
  const width = 400, height = members.length > 4 ? 320 : 240, cx = width / 2, cy = height / 2;
  const at = members.map((_, i) => {
    const angle = 2 * Math.PI * i / members.length - Math.PI / 2 - (members.length % 2 ? 0 : Math.PI / members.length);
    return [cx + 140 * Math.cos(angle), cy - 4 + (cy - 48) * Math.sin(angle)];
  });
  const out = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label":
    missing.length ? "Map of the clusters: " + missing.slice(0, 12).map((m) => `${m.from} does not reach ${m.to}`).join("; ")
      : "Map of the clusters: nobody reports a cluster that it does not reach" });
  const fails = (to, from) => missing.some((m) => m.from === from.cluster && m.to === to.cluster);
  const lines = [], crosses = []; // a cross is at the end that is not reached, where other lines are apart
  members.forEach((a, i) => members.forEach((b, j) => {
    const [x1, y1] = at[i], [x2, y2] = at[j], part = 44 / Math.hypot(x2 - x1, y2 - y1), cut = fails(a, b);
    if (cut) crosses.push(make("text", { x: x1 + part * (x2 - x1), y: y1 + part * (y2 - y1) + 5, class: "cross" }, "✕"));
    if (i < j) lines.push(make("line", { x1, y1, x2, y2, class: cut || fails(b, a) ? "error" : gone(a) || gone(b) ? "unknown" : "" }));
  }));
  out.append(...lines, ...crosses);
  members.forEach((c, i) => {
    const [x, y] = at[i], name = c.cluster.length > 20 ? c.cluster.slice(0, 19) + "…" : c.cluster;
    out.append(make("circle", { cx: x, cy: y, r: 15, class: "node " + (c.level || "") }),
      make("text", { x, y: y + 5 }, c.level ? MARK[c.level] : "✓"),
      make("text", { x, y: y + (y < cy - 5 ? -23 : 33) }, name, make("title", {}, `${c.cluster}: ${c.state}`)));
  });
  return out;
}

function matrix(missing) {
  const some = 30, from = [...new Set(missing.map((m) => m.from))], to = [...new Set(missing.map((m) => m.to))];
  const by = new Map(missing.map((m) => [m.from + " " + m.to, m]));
  const cell = (m) => m ? make("td", { class: "error" }, "✕ ", aged(m.since, "")) : make("td", { class: "quiet" }, "–");
  return make("div", {},
    make("p", {}, `${count(from.length, "cluster")} of ${view.clusters.length} ` +
      `${from.length === 1 ? "does" : "do"} not reach ${to.length === 1 ? "another" : `${to.length} others`}:`),
    make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Who does not reach whom" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "from, to"),
        ...to.slice(0, some).map((t) => make("th", { scope: "col" }, t)))),
      make("tbody", {}, ...from.slice(0, some).map((f) => make("tr", {}, make("th", { scope: "row" }, f),
        ...to.slice(0, some).map((t) => cell(by.get(f + " " + t)))))))),
    from.length > some || to.length > some ? make("p", { class: "quiet" }, `The first ${some} are shown.`) : null);
}

// Names: rows are made only where they are seen.
const labels = (n) => (n.findings || []).map((i) => view.findings[i].check.replaceAll("-", " "));

function filter() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  rows = view.names.filter((n) => {
    if (!words.length) return true;
    if (!n.text) {
      n.text = [n.name, n.type, n.prefer, n.level, ...labels(n), ...(n.cells || []).flatMap((c) =>
        [view.clusters[c.c].cluster, c.x])].join(" ").toLowerCase();
    }
    return words.every((w) => n.text.includes(w));
  });
  $("count").textContent = words.length ? `${rows.length} of ${count(view.names.length, "name")}` :
    count(rows.length, "name");
  layout();
}

let grid = false, high = 50, room = 0; // how the rows are laid out
function layout() {
  const width = $("table").clientWidth, narrow = innerWidth <= 640;
  grid = !narrow && view.clusters.length <= GRID && width > 330 + 86 * view.clusters.length;
  high = narrow ? 84 : 50;
  room = Math.max(1, Math.floor((width - (narrow ? 24 : 324) - 60) / (narrow ? 170 : 190)));
  const columns = grid ? view.clusters.map((c) => make("div", { class: "cell", role: "columnheader", title: c.state },
    c.level ? make("span", { class: c.level }, mark(c.level)) : null, c.cluster)) :
    [make("div", { class: "chips", role: "columnheader" }, "Exported by")];
  $("head").replaceChildren(make("div", { class: "row", role: "row", "aria-rowindex": 1 },
    make("div", { class: "name", role: "columnheader" }, "Name"), ...columns));
  $("head").hidden = narrow;
  $("table").setAttribute("aria-rowcount", rows.length + 1);
  $("body").style.height = `${Math.max(rows.length, 1) * high}px`;
  paint(true);
}

let painted = [0, 0];
function paint(anew) {
  const first = Math.max(0, Math.floor($("table").scrollTop / high) - 6);
  const last = Math.min(rows.length, first + Math.ceil(($("table").clientHeight || innerHeight) / high) + 12);
  if (!anew && first === painted[0] && last === painted[1]) return;
  painted = [first, last];
  const focused = document.activeElement && document.activeElement.dataset.row;
  const made = rows.slice(first, last).map((n, i) => row(n, first + i));
  $("body").replaceChildren(...(made.length ? made : [make("p", {}, view.names.length ? "No name matches." : "No cluster exports a name.")]));
  if (focused !== undefined) goTo(Number(focused));
}

function row(n, i) {
  const at = n.name.indexOf(".");
  const out = make("div", { class: "row", role: "row", "aria-rowindex": i + 2, onclick: () => explain(n.name) },
    make("div", { class: "name", role: "rowheader" },
      make("button", { type: "button", "data-row": i, "data-name": n.name, title: n.name }, n.name.slice(0, at),
        make("i", {}, n.name.slice(at))),
      make("span", { class: "sub " + (n.level || "quiet") }, ...(n.level ? [mark(n.level), labels(n).join(", ")] :
        [[n.type, n.prefer].filter(Boolean).join(", ") || "no export"]))),
    ...(grid ? columns(n) : [chips(n)]));
  out.style.top = `${i * high}px`;
  return out;
}

// gone is why a cluster may be out as a whole, or "".
const gone = (c) => (/^(expired|unreachable$|joining)/.exec(c.state) || [""])[0];

// judge returns the level of a cell of a name, its endpoints, and its share, with the reason if something is wrong.
function judge(c, n) {
  const total = c.t < 0 ? "?" : c.r === c.t ? `${c.r} ready` : `${c.r} of ${c.t} ready`, why = gone(view.clusters[c.c]);
  if (c.x === "not here") return ["", total, c.x];
  if (c.x === "expired") return ["error", total, `0 %, ${why || c.x}`];
  if (c.x) return [c.x === "standby" ? "" : "warning", total, `0 %, ${c.x}`];
  if (c.t >= 0 && c.r === 0) return [labels(n).some((l) => l.startsWith("no endpoint")) ? "error" : "warning", total, "0 %"];
  const share = c.s > 0 ? `${c.s} %` : c.s < 0 ? "share by preference" : "";
  return why ? ["warning", total, [share, why].filter(Boolean).join(", ")] : ["", total, share];
}

function columns(n) {
  const cells = new Map((n.cells || []).map((c) => [c.c, c]));
  return view.clusters.map((cluster, i) => {
    const c = cells.get(i);
    if (!c) return make("div", { class: "cell quiet", role: "cell" }, "–");
    const [level, total, says] = judge(c, n);
    const bar = make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      make("rect", { width: Math.max(0, c.s || 0), height: 10 }));
    return make("div", { class: "cell " + level, role: "cell", "data-cluster": cluster.cluster, title:
      `${cluster.cluster}: ${total} ${says}` }, level ? mark(level) : null, total,
    make("span", { class: "share" }, c.s > 0 ? bar : null, says));
  });
}

function chips(n) {
  const cells = (n.cells || []).map((c) => [c, ...judge(c, n)]).sort((a, b) => rank(a[1]) - rank(b[1]) || b[0].r - a[0].r);
  const out = cells.slice(0, room).map(([c, level, total, says]) => make("span", { class: "chip " + level, "data-cluster":
    view.clusters[c.c].cluster }, level ? mark(level) : null, `${view.clusters[c.c].cluster} ${total}`,
  says ? make("span", { class: level ? "" : "quiet" }, ` · ${says}`) : null));
  if (cells.length > room) out.push(make("span", { class: "quiet" }, `+${cells.length - room}`));
  return make("div", { class: "chips", role: "cell" }, ...out);
}

// goTo moves to a row, which is made first.
function goTo(i) {
  if (i < 0 || i >= rows.length) return;
  const box = $("table"), top = i * high, head = $("head").offsetHeight;
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + high + head > box.scrollTop + box.clientHeight) box.scrollTop = top + high + head - box.clientHeight;
  paint(false);
  const button = $("body").querySelector(`[data-row="${i}"]`);
  if (button && button !== document.activeElement) button.focus({ preventScroll: true });
}

// Explanation of one name.
async function explain(name) {
  opened = name;
  const n = view.names.find((x) => x.name === name);
  $("explain-title").textContent = `${name}.svc.clusterset.local`;
  if (!$("explain").open) {
    $("explain-body").replaceChildren(make("p", { class: "quiet" }, "Reading …"));
    drawn.explain = "";
    $("explain").showModal();
  }
  let r = explained ? explained[name] : null, why = "It is not in this file, which has the worst names only.";
  if (!explained) {
    const answer = await fetch(`/explain?name=${encodeURIComponent(name)}`).catch(() => null);
    if (answer && answer.ok) r = await answer.json();
    why = answer ? `Nothing is known of it: ${answer.status}` : "kubectl clusterset ui has ended.";
  }
  if (opened !== name) return;
  const body = [], add = (title, ...nodes) => body.push(make("h3", {}, title), ...nodes);
  const own = n ? (n.findings || []).map((i) => view.findings[i]) : [];
  if (r) body.push(make("p", {}, headline(r)));
  else body.push(make("p", { class: "quiet" }, why),
    make("div", { class: "step" }, ...step(`kubectl clusterset explain ${name}`)));
  if (own.length) add("What is wrong", make("ul", {}, ...own.map(finding)));
  if (r) details(r, n, add);
  part("explain", [r, own, name], () => $("explain-body").replaceChildren(...body));
}

function headline(r) {
  const of = r.type || (r.exporters || [{}])[0].type || "No cluster exports it";
  if (!r.cluster) return `${of}. What it answers depends on the cluster that asks; this is what the hub has of it.`;
  const says = { Success: "answers", NoData: "exists without addresses (NODATA)", NameError: "does not exist (NXDOMAIN)",
    NotServed: "is not served: this cluster's DNS is not configured for clusterset.local" };
  return `${of}; in cluster ${r.cluster} it ${says[r.outcome] || "may or may not answer: not all was read"}.`;
}

function details(r, n, add) {
  const table = (columns, lines) => make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": columns.join(", ") },
    make("table", {}, make("thead", {}, make("tr", {}, ...columns.map((c) => make("th", { scope: "col" }, c)))),
      make("tbody", {}, ...lines.map((l) => make("tr", {}, ...l.map((c) => make("td", {}, c)))))));
  const cell = (id) => n && (n.cells || []).find((c) => view.clusters[c.c].cluster === id);
  const notes = (e) => [e.here ? "this cluster" : "", e.held && `held: ${e.held}`, e.expired && `expired: ${e.expired}`,
    e.silent && `its agent does not answer here since ${e.silent}`, e.agentSilent && `only its endpoints answer since ${e.agentSilent}`,
    e.noTraffic && "no traffic, by preference", e.preferred && `gets the traffic (${e.preferred})`].filter(Boolean).join("; ");
  const said = (e) => {
    const c = cell(e.cluster), [level, total, says] = c ? judge(c, n) : ["", e.notCounted ? "?" : `${e.ready} of ${e.ready + e.notReady} ready`, ""];
    return make("span", { class: level }, level ? mark(level) : null, [total, says].filter(Boolean).join(", "));
  };
  if (r.exporters) {
    add("Exported by, oldest first", table(["Cluster", "Exported for", "Type", "Ports", "Ready, share", "Note"],
      r.exporters.map((e) => [e.cluster, aged(e.since, ""), e.type, (e.ports || []).join(", "), said(e), notes(e)])));
  }
  const differ = (r.properties || []).filter((p) => p.others);
  if (differ.length) {
    add("Clusters disagree", table(["Property", "In effect", "Others have"], differ.map((p) => [p.name,
      `${p.value || "none"} (${p.from})`, Object.entries(p.others).map(([c, v]) => `${c}: ${v || "none"}`).join("; ")])));
  }
  const agree = (r.properties || []).filter((p) => !p.others);
  if (r.withheld) add("Withheld", table(["Cluster", "What", "Why"], r.withheld.map((w) => [w.cluster, w.what, w.why])));
  if (r.answers) {
    add(`Answers in ${r.cluster}`, make("pre", {}, r.answers.flatMap((a) => a.data.map((d) => `${a.type.padEnd(5)} ${d}`)).join("\n")));
  }
  for (const why of r.asFarAsKnown || []) add("As far as known", make("p", {}, why));
  if (agree.length) add("In effect", table(["Property", "Value"], agree.map((p) => [p.name, p.value])));
  if (r.external) {
    add("For clients outside the clusters", table(["Cluster", "Addresses", "Up", "Share"], r.external.map((x) => [x.cluster,
      x.addresses.join(" "), x.up ? "yes" : `no: ${x.why || ""}`, `${Math.round(x.share)} %`])));
  }
}

function keys(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || $("explain").open) return;
  const on = document.activeElement, at = on && on.dataset.row !== undefined ? Number(on.dataset.row) : -1;
  const page = Math.max(1, Math.floor($("table").clientHeight / high) - 1);
  const moves = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: rows.length - 1 };
  if (e.key === "/" && on !== $("filter")) {
    $("filter").focus();
    $("filter").select();
  } else if (on === $("filter") && e.key === "ArrowDown") goTo(0);
  else if (at === 0 && e.key === "ArrowUp") $("filter").focus();
  else if (at >= 0 && e.key in moves) goTo(Math.min(Math.max(moves[e.key], 0), rows.length - 1));
  else return;
  e.preventDefault();
}

function stale(why) {
  $("stale").hidden = !why;
  if ($("stale").textContent !== why) $("stale").textContent = why;
}

function live() {
  let at = "";
  const events = new EventSource("/events");
  events.addEventListener("view", (e) => show(JSON.parse(e.data)));
  events.addEventListener("pulse", (e) => {
    const p = JSON.parse(e.data);
    if (p.at) {
      at = stamp(Date.parse(p.at));
      ahead = Date.parse(p.at) - Date.now();
    }
    stale(p.error ? `Reading failed: ${p.error}. ${at ? `What you see is as of ${at}.` : ""}` : "");
    tick();
  });
  events.addEventListener("error", () => {
    stale(`kubectl clusterset ui has ended, or was not opened by its address. ${at ? `What you see is as of ${at}.` : ""}`);
  });
}

$("filter").addEventListener("input", () => { $("table").scrollTop = 0; filter(); });
$("table").addEventListener("scroll", () => paint(false), { passive: true });
$("more").addEventListener("click", () => { all = !all; part("findings", [view.findings, all], findings); });
$("explain").addEventListener("close", () => {
  goTo(rows.findIndex((n) => n.name === opened)); // where it was opened may have been drawn anew
  opened = "";
});
$("explain").addEventListener("click", (e) => { if (e.target === $("explain")) $("explain").close(); });
addEventListener("resize", () => { if (view) layout(); });
addEventListener("keydown", keys);
setInterval(tick, 1000);
if ($("data")) {
  const file = JSON.parse($("data").textContent);
  explained = file.explained;
  stands = Date.parse(file.at);
  show(file.view);
} else {
  live();
}
