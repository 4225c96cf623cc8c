"use strict";
(() => {
  const form = document.getElementById("filters");
  const table = document.querySelector("table");
  const bodies = [...table.tBodies];
  const names = ["text", "release", "gpu", "isa", "state"];
  const texts = bodies.map((body) => body.rows[0].textContent.toLowerCase() + " " + body.rows[0].cells[0].title);

  document.documentElement.classList.add("js");

  for (const body of bodies) {
    const cell = body.querySelector(".past");
    if (!body.rows[1]) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.append(...cell.childNodes);
    cell.append(button);
    const details = body.rows[1].querySelector("details");
    if (details) details.open = true;
    button.addEventListener("click", () => {
      button.setAttribute("aria-expanded", String(body.classList.toggle("open")));
    });
  }

  /* The state of the filters is in the address: it can be linked, and a reload keeps it. */
  const wanted = () => new URLSearchParams(location.hash.slice(1));

  function filter() {
    const values = wanted();
    const words = (values.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    bodies.forEach((body, number) => {
      const fits = names.slice(1).every((name) => !values.get(name) || body.dataset[name] === values.get(name))
        && words.every((word) => texts[number].includes(word));
      body.hidden = !fits;
      shown += fits;
    });
    document.getElementById("count").textContent = `${shown} of ${bodies.length} variants`;
  }

  function fill() {
    const values = wanted();
    for (const name of names) {
      const field = form.elements[name];
      field.value = values.get(name) || "";
    }
    filter();
  }

  function remember() {
    const values = new URLSearchParams();
    for (const name of names) {
      if (form.elements[name].value) values.set(name, form.elements[name].value);
    }
    history.replaceState(history.state, "", "#" + values);
    filter();
  }

  form.addEventListener("input", remember);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(remember));
  window.addEventListener("hashchange", () => {
    fill();
    if (names.some((name) => wanted().get(name))) form.scrollIntoView();
  });

  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "descending" : "ascending");
      const key = head.dataset.key;
      const isNumber = key in bodies[0].dataset && head.dataset.key !== "state";
      const value = (body) => isNumber
        ? (body.dataset[key] === "" ? Infinity : Number(body.dataset[key]))
        : body.rows[0].cells[column].textContent.trim();
      const sorted = bodies.map((body) => [value(body), body]);
      const sign = up ? -1 : 1;
      sorted.sort(([a], [b]) => {
        if (isNumber && (a === Infinity || b === Infinity)) return a === b ? 0 : a === Infinity ? 1 : -1;
        return sign * (isNumber ? a - b : a.localeCompare(b, "en", { numeric: true }));
      });
      table.append(...sorted.map(([, body]) => body));
    });
  });

  /* A file that is kept up to date is loaded again, unless somebody types or reads a selection. */
  const reload = document.getElementById("reload");
  if (reload) {
    reload.parentElement.hidden = false;
    const saved = history.state || {};
    reload.checked = saved.reload !== false;
    /* What is open stays open: rows of the table and failures, by the id of the variant. */
    const parts = [...bodies, ...document.querySelectorAll(".failure")];
    const label = (part) => part.tagName + part.querySelector("th, b").textContent;
    const isOpen = (part) => part.tagName === "DETAILS" ? part.open : part.classList.contains("open");
    const before = parts.map(isOpen);
    const changed = new Set(saved.changed || []);
    for (const part of parts) {
      if (!changed.has(label(part))) continue;
      if (part.tagName === "DETAILS") part.open = !part.open;
      else part.querySelector(".past button").click();
    }
    setInterval(() => {
      const isBusy = form.contains(document.activeElement) || String(getSelection());
      if (!reload.checked || isBusy || document.hidden) return;
      const now = parts.filter((part, number) => isOpen(part) !== before[number]).map(label);
      history.replaceState({ changed: now, reload: reload.checked }, "");
      location.reload();
    }, 5000);
    reload.addEventListener("change", () => history.replaceState({ ...history.state, reload: reload.checked }, ""));
  }
  form.hidden = false;
  fill();
})();
