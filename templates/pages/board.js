(() => {
  const form = document.getElementById("filters");
  const more = document.getElementById("more");
  const heading = document.getElementById("packages");
  const rows = [...document.querySelector(".packages").tBodies[0].rows];
  const names = ["text", "release", "gpu", "isa", "state"];
  const texts = new Map(rows.map((row) => [row, `${row.textContent} ${row.cells[0].title}`.toLowerCase()]));
  let most = Number(more.dataset.shown);

  /* The filters are in the address: it can be linked, and a reload keeps them. */
  function filter() {
    const values = new URLSearchParams(location.hash.slice(1));
    const words = (values.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
    for (const name of names) form.elements[name].value = values.get(name) || "";
    const found = rows.filter((row) => names.slice(1).every((name) => !values.get(name) || row.dataset[name] === values.get(name))
      && words.every((word) => texts.get(row).includes(word)));
    const shown = new Set(found.slice(0, most));
    for (const row of rows) row.hidden = !shown.has(row);
    more.hidden = shown.size === found.length;
    const first = more.hidden ? "" : `the first ${most} of `;
    document.getElementById("count").textContent = `${first}${found.length} of ${rows.length} packages`;
  }
  form.addEventListener("input", () => {
    const values = names.map((name) => [name, form.elements[name].value]).filter(([, value]) => value);
    history.replaceState(history.state, "", `#${new URLSearchParams(values)}`);
    filter();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => { location.hash = ""; });
  more.addEventListener("click", () => { most = rows.length; filter(); });
  addEventListener("hashchange", () => {
    filter();
    if (location.hash.includes("=")) heading.scrollIntoView();
  });

  /* A file that is kept up to date is loaded again, unless somebody types, selects or reads. */
  const reload = document.getElementById("reload");
  if (reload) {
    reload.parentElement.hidden = false;
    reload.checked = history.state?.reload !== false;
    reload.addEventListener("change", () => history.replaceState({ reload: reload.checked }, ""));
    setInterval(() => {
      const isBusy = form.contains(document.activeElement) || String(getSelection()) || document.hidden;
      if (reload.checked && !isBusy && !document.querySelector("details[open]")) location.reload();
    }, 5000);
  }
  form.hidden = false;
  filter();
})();
