"use strict";
(() => {
  const form = document.getElementById("filters");
  const table = document.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  const names = ["text", "release", "gpu", "isa", "state"];
  const texts = new Map(rows.map((row) => [row, `${row.textContent} ${row.cells[0].title}`.toLowerCase()]));

  /* The filters are in the address: it can be linked, and a reload keeps them. */
  function filter() {
    const values = new URLSearchParams(location.hash.slice(1));
    const words = (values.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
    for (const name of names) form.elements[name].value = values.get(name) || "";
    for (const row of rows) {
      row.hidden = !(names.slice(1).every((name) => !values.get(name) || row.dataset[name] === values.get(name))
        && words.every((word) => texts.get(row).includes(word)));
    }
    const shown = rows.filter((row) => !row.hidden).length;
    document.getElementById("count").textContent = `${shown} of ${rows.length} packages`;
  }
  form.addEventListener("input", () => {
    const values = names.map((name) => [name, form.elements[name].value]).filter(([, value]) => value);
    history.replaceState(history.state, "", `#${new URLSearchParams(values)}`);
    filter();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => { location.hash = ""; });
  addEventListener("hashchange", filter);

  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
      rows.sort((a, b) => (value(a) === "unknown") - (value(b) === "unknown")
        || sign * value(a).localeCompare(value(b), "en", { numeric: true }));
      table.tBodies[0].append(...rows);
    });
  });

  /* A file that is kept up to date is loaded again, unless somebody types or reads a selection. */
  const reload = document.getElementById("reload");
  if (reload) {
    const saved = history.state || {};
    const failures = [...document.querySelectorAll(".failure")];
    reload.parentElement.hidden = false;
    reload.checked = saved.reload !== false;
    for (const failure of failures) failure.open = saved.open?.[failure.id] ?? failure.open;
    setInterval(() => {
      const isBusy = form.contains(document.activeElement) || String(getSelection()) || document.hidden;
      const open = Object.fromEntries(failures.map((failure) => [failure.id, failure.open]));
      history.replaceState({ reload: reload.checked, open }, "");
      if (reload.checked && !isBusy) location.reload();
    }, 5000);
  }
  form.hidden = false;
  filter();
})();
