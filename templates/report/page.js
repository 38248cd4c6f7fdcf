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
  for (const table of all("table.sorts")) {
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
  }

  // One form filters the rows of all tables whose columns say by what.
  const tables = all("table").filter((table) => table.querySelector("[data-is]"));
  if (!tables.length) return;
  const rows = tables.flatMap((table) => all("tbody tr", table));
  const places = new Map(tables.map((table) =>
    [table, Object.fromEntries(all("thead th", table).flatMap((head, at) => head.dataset.is ? [[head.dataset.is, at]] : []))]));
  const value = (row, name) => {
    const at = places.get(row.closest("table"))[name];
    return at === undefined ? "" : cell(row, at).replace(/^\d+ x /, "");
  };
  const form = document.createElement("form");
  form.className = "filters";
  form.setAttribute("aria-label", "Filter the rows of tables");
  const fields = {};
  const add = (name, words, field) => {
    const label = document.createElement("label");
    field.name = name;
    label.append(words + " ", field);
    form.append(label);
    fields[name] = field;
  };
  const choices = (values) => {
    const field = document.createElement("select");
    field.append(new Option("all", ""), ...values.map(([words, one]) => new Option(words, one)));
    return field;
  };
  for (const name of new Set([...places.values()].flatMap(Object.keys))) {
    if (name === "hour") {
      const field = document.createElement("input");
      Object.assign(field, { type: "number", min: 0, step: "any", inputMode: "decimal" });
      add(name, "At most, $ an hour", field);
      continue;
    }
    const found = [...new Set(rows.map((row) => value(row, name)))].filter(Boolean)
      .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    if (found.length > 1) add(name, name[0].toUpperCase() + name.slice(1), choices(found.map((one) => [one, one])));
  }
  if (rows.some((row) => row.classList.contains("none"))) {
    add("fits", "Fits", choices([["fits", "yes"], ["does not fit", "no"]]));
  }
  if (!Object.keys(fields).length) return;
  const button = document.createElement("button");
  button.type = "reset";
  button.textContent = "Show all";
  const output = document.createElement("output");
  form.append(button, output);
  const right = (row, name, wanted) => !wanted
    || (name === "hour" ? number(value(row, name)) <= parseFloat(wanted)
      : name === "fits" ? (wanted === "yes") === !row.classList.contains("no")
      : [wanted, ""].includes(value(row, name)));
  const filter = () => {
    let shown = 0;
    for (const row of rows) {
      row.hidden = !Object.entries(fields).every(([name, field]) => right(row, name, field.value));
      shown += !row.hidden;
    }
    output.textContent = shown < rows.length ? shown + " of " + rows.length + " rows" : "";
  };
  form.addEventListener("input", filter);
  form.addEventListener("change", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  tables[0].closest(".scroll").before(form);
})();
