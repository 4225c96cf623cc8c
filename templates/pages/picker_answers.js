"use strict";
/* Looks an answer up in the table of build_pytorch/generate/picker_answers.py, which explains it.
   Nothing is decided here. */
function makeAnswers(facts) {
  const parts = (version) => version.split(".").map(Number);

  /* The number of steps of a list that a version has reached. */
  function stepOf(version, steps) {
    const reached = (step) => {
      const [mine, wanted] = [parts(version), parts(step)];
      const place = wanted.findIndex((number, i) => number !== mine[i]);
      return place < 0 || mine[place] > wanted[place];
    };
    return steps.filter(reached).length;
  }

  /* The place of a value on an axis: 0 if it is unknown or false. */
  function placeOn({ steps, exact }, value) {
    if (!value) return 0;
    const place = exact.indexOf(value);
    return place >= 0 ? steps.length + 2 + place : 1 + stepOf(value, steps);
  }

  /* The number of a driver state: one for each combination of places on the axes. */
  const stateOf = (machine) => facts.axes.reduce((number, axis) =>
    number * (axis.steps.length + 2 + axis.exact.length) + placeOn(axis, machine[axis.name]), 0);

  /* A value of the pool with the values that its lists and objects name; `fill` changes its texts. */
  function valueOf(number, fill) {
    const value = facts.pool[number];
    if (typeof value === "string") return fill(value);
    if (Array.isArray(value)) return value.map((part) => valueOf(part, fill));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, valueOf(part, fill)]));
  }

  /* The answer for { kind, cpu, platform, gpu, driver, cuda, isWsl, isConsumer }; null if the table
     has none. `kind` is a capability, "none", "other" or "?", `cpu` the key of a class of CPUs. */
  function lookUp(machine) {
    const row = Object.hasOwn(facts.table, machine.kind) ? facts.table[machine.kind] : null;
    if (!row || !Object.hasOwn(row.by_cpu, machine.cpu)) return null;
    const state = stateOf(machine);
    const said = valueOf(facts.states[state], (text) => text);
    const filled = (text) => text.replace(/\{limit (\d+)\}/g, (_, number) => said.limits[number])
      .replace(/\{(gpu|driver|cuda|platform)\}/g, (_, name) => machine[name]);
    const group = facts.pool[facts.pool[row.groups][state]];
    const { cudas, remarks, ...answer } = valueOf(facts.pool[row.by_cpu[machine.cpu]][group], filled);
    const ofDriver = said.remarks.filter(([cuda]) => !cuda || cudas.includes(cuda));
    return { ...answer, remarks: [...remarks, ...ofDriver.map(([, text]) => filled(text))] };
  }

  return { lookUp };
}
