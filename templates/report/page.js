// What a page is with script and complete without: copying, sorting, filtering.
"use strict";
(() => {
  const all = (what, from = document) => [...from.querySelectorAll(what)];
  const said = document.getElementById("said");
  const say = (words) => {
    said.textContent = "";
    setTimeout(() => { said.textContent = words; }, 50);
  };

  const select = (code) => getSelection().selectAllChildren(code);
  const copied = async (code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch {
      select(code);
      return document.execCommand("copy");
    }
  };
  for (const button of all(".copy")) {
    const words = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = button.parentNode.querySelector("code");
      const done = await copied(code);
      if (!done) select(code);
      button.textContent = done ? "Copied" : "Selected: press Ctrl+C";
      say(done ? "Command copied" : "Command selected, press Control C to copy");
      setTimeout(() => { button.textContent = words; }, 2000);
    });
  }

  addEventListener("beforeprint", () => all("details").forEach((one) => { one.open = true; }));

  const cell = (row, at) => row.cells[at]?.colSpan > 1 ? "" : row.cells[at]?.textContent.trim() ?? "";
  const number = (text) => parseFloat(text.replaceAll(",", "").replace(/^[^\d.+-]+/, ""));
  const order = (at, numeric, down) => (a, b) => {
    const [x, y] = [cell(a, at), cell(b, at)].map((text) => numeric ? number(text) : text);
    const lacks = (value) => numeric ? isNaN(value) : value === "";
    if (lacks(x) || lacks(y)) return lacks(x) - lacks(y);
    return (numeric ? x - y : x.localeCompare(y, "en", { numeric: true })) * (down ? -1 : 1);
  };
  const sorts = (table) => {
    const body = table.querySelector("tbody");
    const rows = all("tr", body);
    const heads = all("thead th", table);
    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...rows.sort(order(at, head.classList.contains("n"), down)));
        say("Sorted by " + button.textContent + (down ? ", descending" : ", ascending"));
      });
    });
    return [rows, heads];
  };
  all("table.sorts").forEach(sorts);

  const place = document.getElementById("instances");
  if (!place) return;
  const [rows, heads] = sorts(place);
  const form = place.querySelector("form");
  const field = (name) => form.elements[name];
  const at = (name) => heads.findIndex((head) => head.dataset.is === name);
  const offer = (name, values) => {
    const found = [...new Set(values)].filter(Boolean).sort();
    field(name).append(...found.map((value) => new Option(value)));
    field(name).parentNode.hidden = found.length < 2;
  };
  const device = (row) => cell(row, at("devices")).replace(/^\d+ x /, "");
  const provider = (row) => at("provider") < 0 ? "" : cell(row, at("provider"));
  offer("device", rows.map(device));
  offer("provider", rows.map(provider));
  form.hidden = false;
  const filter = () => {
    const most = parseFloat(field("hour").value);
    const fits = field("fits").value;
    let shown = 0;
    for (const row of rows) {
      const hour = number(cell(row, at("hour")));
      const right = (!field("provider").value || provider(row) === field("provider").value)
        && (!field("device").value || device(row) === field("device").value)
        && (!fits || (fits === "yes") === !row.classList.contains("no"))
        && (isNaN(most) || hour <= most);
      row.hidden = !right;
      shown += right;
    }
    form.querySelector("output").textContent = shown + " of " + rows.length + " instances";
  };
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
})();
