// Pages of benchmarks: one form filters the rows of all tables.
(() => {
  const all = (what, from) => [...from.querySelectorAll(what)];
  const cell = (row, at) => row.cells[at]?.textContent.trim() ?? "";
  const figures = document.getElementById("figures");
  const form = figures.querySelector("form");
  const rows = all("tbody tr", figures);
  const heads = rows.map((row) => all("th", row.closest("table").tHead).map((one) => one.textContent));
  const load = (at) => ["concurrency", "rate", "load"].map((name) => heads[at].indexOf(name)).find((place) => place > 0) ?? -1;
  const of = rows.map((row, at) => ({ variant: cell(row, 0), load: load(at) < 0 ? "" : cell(row, load(at)) }));
  let useful = false;
  for (const name of ["variant", "load"]) {
    const found = [...new Set(of.map((one) => one[name]))].filter(Boolean)
      .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    form.elements[name].append(...found.map((value) => new Option(value)));
    form.elements[name].parentNode.hidden = found.length < 2;
    useful ||= found.length > 1;
  }
  form.hidden = !useful;
  const filter = () => {
    const right = (one, name) => !form.elements[name].value || !one[name] || one[name] === form.elements[name].value;
    let shown = 0;
    rows.forEach((row, at) => {
      row.hidden = !(right(of[at], "variant") && right(of[at], "load"));
      shown += !row.hidden;
    });
    form.querySelector("output").textContent = shown < rows.length ? shown + " of " + rows.length + " rows" : "";
  };
  form.addEventListener("change", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
})();
