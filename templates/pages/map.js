"use strict";
document.documentElement.classList.add("js");

/* Maps of releases: one stop of the Tab key for each; the arrow keys move from cell to cell. */
for (const table of document.querySelectorAll(".map")) {
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].slice(1).map((cell) => cell.querySelector("a")));
  const cells = rows.flat().filter(Boolean);
  const enter = (cell) => {
    for (const each of cells) each.tabIndex = -1;
    cell.tabIndex = 0;
  };
  if (cells.length) enter(cells[0]);
  table.addEventListener("keydown", (event) => {
    let row = rows.findIndex((line) => line.includes(event.target));
    if (row < 0) return;
    let column = rows[row].indexOf(event.target);
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -1], End: [0, 1] };
    if (!Object.hasOwn(steps, event.key)) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    let next = null;
    while (rows[row += down]?.[column += right] !== undefined) {
      next = rows[row][column] ?? next;
      if (next && event.key.startsWith("Arrow")) break;
    }
    if (!next) return;
    enter(next);
    next.focus();
  });
}
