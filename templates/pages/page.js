"use strict";
/* Looks answers and cells up in the data of build_pytorch/generate/site_page.py. Decides nothing. */
const get = (id) => document.getElementById(id);
const facts = JSON.parse(get("facts").textContent);

function add(parent, tag, text, kind = "") {
  const element = parent.appendChild(document.createElement(tag));
  element.textContent = text;
  element.className = kind;
  return element;
}

function addCard([kind, name, command, ...says]) {
  const card = add(get("answer"), "section", "", kind);
  if (kind !== "note") add(card, "h2", kind);
  if (name) add(card, "p", name, "name");
  const list = add(card, "ul", "");
  for (const text of says) add(list, "li", text);
  if (command) add(card, "code", command);
}

function mark(name) {
  document.querySelector("td.chosen")?.classList.remove("chosen");
  const cell = facts.cells.findIndex((it) => it[0] === name);
  document.querySelector(`input[value="${cell}"]`)?.closest("td").classList.add("chosen");
}

function answer() {
  const [gpu, cpu, driver] = ["gpu", "cpu", "driver"].map(get);
  get("answer").replaceChildren();
  if (!gpu.value || !cpu.value) return mark();
  const [name, ...cards] = facts.answers[facts.table[gpu.value][cpu.value][driver.selectedIndex]];
  for (const card of cards) addCard(facts.cards[card]);
  mark(name);
}

function show(input) {
  const [name, command, says] = facts.cells[Number(input.value)];
  const box = get("cell");
  box.replaceChildren();
  add(box, "b", name);
  add(box, "span", says);
  if (command) add(box, "code", command);
}

const grids = document.querySelector(".grids");
document.querySelector("form").addEventListener("change", answer);
grids.addEventListener("change", (event) => show(event.target));
grids.addEventListener("keydown", (event) => {
  const [step, cell] = [{ ArrowUp: -1, ArrowDown: 1 }[event.key], event.target.closest("td")];
  if (!step || !cell) return;
  event.preventDefault();
  const row = cell.closest("table").rows[cell.parentNode.rowIndex + step];
  const next = row?.cells[cell.cellIndex].querySelector("input");
  next?.focus();
  next?.click();
});
answer();
