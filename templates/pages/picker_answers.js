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

  /* The answer for { kind, cpu, platform, gpu, driver, cuda, isWsl, isConsumer }; null if the table
     has none. `kind` is a capability, "none", "other" or "?", `cpu` the key of a class of CPUs. */
  function lookUp(machine) {
    const row = Object.hasOwn(facts.table, machine.kind) ? facts.table[machine.kind] : null;
    if (!row || !Object.hasOwn(row.by_cpu, machine.cpu)) return null;
    const state = stateOf(machine);
    const [limits, stateRemarks] = facts.says[facts.states[state]];
    const group = facts.lists[row.groups][state];
    const [best, ideal, doubts, next, rejected, waits, remarks, cudas] =
      facts.answers[facts.lists[row.by_cpu[machine.cpu]][group]];

    const values = { gpu: machine.gpu, driver: machine.driver, cuda: machine.cuda, platform: machine.platform };
    const filled = (text) => text.replace(/\{limit (\d+)\}/g, (_, number) => facts.texts[limits[number]])
      .replace(/\{(gpu|driver|cuda|platform)\}/g, (_, name) => values[name]);
    const say = (numbers) => filled(numbers.map((number) => facts.texts[number]).join("; "));
    const buildOf = (number) => {
      const [id, about, names = null, companions = []] = facts.builds[number];
      return { id, about, names, companions };
    };
    const chosen = (found) => {
      if (!found) return null;
      const [build, reason, later, command, hasUnused] = found;
      return { ...buildOf(build), reason: say(reason), later: say(later), command: say(command), hasUnused };
    };
    return {
      best: chosen(best),
      ideal: chosen(ideal),
      doubts: doubts.map(say),
      next: facts.lists[next].map(([build, why]) => ({ id: facts.builds[build][0], why: filled(facts.texts[why]) })),
      rejected: facts.lists[rejected].map(([subjects, why]) => ({ subjects: say(subjects), why: say(why) })),
      waits: say(waits),
      remarks: [...remarks.map(say), ...stateRemarks.filter(([cuda]) => !cuda || cudas.includes(cuda))
        .map(([, text]) => filled(facts.texts[text]))],
    };
  }

  return { lookUp };
}
