// What the pages of the server do with script and show without: live progress and logs.
(() => {
  const all = (what, from = document) => [...from.querySelectorAll(what)];
  const said = document.getElementById("said");
  const say = (words) => { said.textContent = words; };
  const log = document.getElementById("log");
  const MOST = 400000;  // letters of a log that stay on the page

  const tones = ["note", "run", "warning", "yes", "error"];
  const place = (root, name) => root.querySelector(`[data-live=${name}]`);
  const shown = (state) => {
    const key = `${state.kind}/${state.name}`;
    for (const root of all("[data-job]").filter((one) => one.dataset.job === key)) {
      const badge = place(root, "status");
      if (badge.textContent !== state.status) say(`${state.name}: ${state.status}`);
      badge.textContent = state.status;
      badge.classList.remove(...tones);
      badge.classList.add(state.tone);
      place(root, "words").textContent = state.words;
      place(root, "left").textContent = state.left;
      const bar = place(root, "share");
      bar.hidden = state.share === null;
      if (state.share !== null) bar.value = state.share;
      if (state.ended) root.removeAttribute("data-runs");
    }
  };
  const logged = (text) => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    log.append(text);
    while (log.textContent.length > MOST && log.childNodes.length > 1) log.firstChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  if (log) log.scrollTop = log.scrollHeight;

  // The page of a job that has ended has more on it. Nobody is taken away from what they do there.
  const renew = () => {
    const at = document.activeElement;
    if (!at || at === document.body) { location.reload(); return; }
    const link = document.createElement("a");
    link.href = location.href;
    link.className = "does";
    link.textContent = "Show the result";
    document.getElementById("now").append(link);
  };

  let stream = null;
  let from = null;
  const watched = document.querySelector("[data-stream]");
  const address = () => {
    const found = new URL(watched.dataset.stream, location);
    if (watched.matches("table"))
      all("[data-runs]", watched).forEach((row) => found.searchParams.append("job", row.dataset.job));
    else if (from !== null) found.searchParams.set("from", from);
    return found;
  };
  const close = () => { stream?.close(); stream = null; };
  const open = () => {
    if (!watched || stream) return;
    stream = new EventSource(address());
    stream.addEventListener("job", (event) => shown(JSON.parse(event.data)));
    stream.addEventListener("log", (event) => { from = event.lastEventId; logged(JSON.parse(event.data).text); });
    stream.addEventListener("end", () => {
      close();
      watched.removeAttribute("data-stream");
      document.removeEventListener("visibilitychange", turned);
      if (!watched.matches("table")) renew();
    });
    stream.addEventListener("error", () => {
      if (stream?.readyState !== EventSource.CLOSED) return;
      close();
      setTimeout(() => { if (!document.hidden) open(); }, 5000);
    });
  };
  // Browsers allow a server six connections: pages that nobody sees hold none.
  const turned = () => document.hidden ? close() : open();
  if (watched) {
    document.addEventListener("visibilitychange", turned);
    addEventListener("pagehide", close);
    turned();
  }

  // An endpoint that comes up or goes down is looked at again, unless somebody is busy on its page.
  const again = document.querySelector("[data-again]");
  if (again) setInterval(() => {
    const at = document.activeElement;
    if (!document.hidden && (!at || at === document.body)) location.reload();
  }, 1000 * again.dataset.again);

  // A form shows what belongs to the choices made; without script it shows everything.
  for (const part of all("[data-for]")) {
    const [name, ...values] = part.dataset.for.split(" ");
    const fields = all(`[name=${name}]`);
    const set = () => {
      const now = fields.filter((one) => one.type === "radio" || one.type === "checkbox" ? one.checked : true)
        .map((one) => one.value);
      part.hidden = !now.some((one) => values.includes(one));
    };
    fields.forEach((one) => one.addEventListener("change", set));
    set();
  }
  document.getElementById("lineage-subject")?.scrollIntoView({ block: "nearest", inline: "center" });
  document.querySelector(".summary")?.focus();
})();
