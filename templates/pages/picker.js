(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const rules = makeRules(facts);
  const reader = makeReader(facts, rules);
  const form = document.getElementById("machine");
  const answer = document.getElementById("answer");
  const names = ["gpu", "cpu", "driver"];
  const mostShown = 6;

  document.documentElement.classList.add("js");

  /* Texts become text nodes: nothing that comes from outside is ever read as HTML. */
  function el(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null && child !== ""));
    return element;
  }

  /* A text with `code` between backticks. */
  const coded = (text) => text.split("`").map((part, number) => (number % 2 ? el("code", {}, part) : part));
  const list = (tag, items) => el(tag, {}, ...items.map((item) => el("li", {}, ...[item].flat())));

  function folded(title, isOpen, ...children) {
    return el("details", { class: "more", ...(isOpen ? { open: "" } : {}) }, el("summary", {}, title), ...children);
  }

  function about({ release, cpu, cuda }) {
    const on = cuda ? `on CUDA ${cuda.version}` : "without CUDA";
    return `PyTorch ${release.torch} ${on}, Python ${release.python}, ${cpu.title}`;
  }

  /* --- commands to copy --- */

  function copyButton(text, label) {
    const button = el("button", { type: "button", "aria-label": `Copy: ${label}` }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const area = el("textarea", {}, text);
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
        button.focus();
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return button;
  }

  const command = (what, text, help = "") => el("div", {}, el("dt", {}, what),
    el("dd", {}, el("code", {}, text), copyButton(text, what), ...(help ? [el("small", {}, help)] : [])));

  const placeOf = (environment) => (environment === "." ? "" : ` --dir ${environment}`);

  /* Packages that are compiled against this PyTorch, such as torchvision. */
  function companionsOf(variant) {
    const { id, companions } = variant;
    if (!companions.length) return [];
    const title = companions.map(({ name, version }) => `${name} ${version}`).join(" and ");
    const environments = [...new Set(companions.map((it) => it.environment))];
    const build = environments.map((each) => `flox build${placeOf(each)} ${
      companions.filter((it) => it.environment === each).map((it) => it.package).join(" ")}`);
    return [folded(`With ${title}`, false, el("dl", { class: "commands" },
      command("Install with Flox", `flox install ${[variant, ...companions].map((it) => `ORG/${it.package}`).join(" ")}`),
      command("Build with Flox", build.join(" && ")),
      command("Build with Nix", `nix-build release.nix ${companions.map((it) => `-A ${it.attribute}`).join(" ")}`),
      command("Build and check", `invoke build ${companions.map((it) => `${id}+${it.name}`).join(" ")}`)))];
  }

  function commandsOf(variant) {
    return [el("dl", { class: "commands" },
      command("Install with Flox", `flox install ORG/${variant.package}`, "ORG is the organization that published it."),
      command("Build with Flox", `flox build${placeOf(variant.release.environment)} ${variant.package}`),
      command("Build with Nix", `nix-build release.nix -A ${variant.attribute}`),
      command("Build and check", `invoke build ${variant.id}`)), ...companionsOf(variant)];
  }

  /* --- the answer --- */

  const namesOf = (gpus) => [...new Set(gpus.map((gpu) => gpu.name))].join(", ");

  /* How the fields were understood, so that a wrong guess is seen. */
  function understood({ gpus, otherGpus, platform, driver }, says) {
    const kinds = [...new Set(gpus.map((gpu) => `${gpu.name} (capability ${gpu.capability ?? "unknown"})`)), ...otherGpus];
    return el("p", { class: "facts", id: "understood" }, "For ",
      [kinds.join(", ") || "no GPU", says || platform, driver ? `driver ${driver}` : ""].filter(Boolean).join("; "), ".");
  }

  function bestCard(found, forWhat) {
    const { best, answers } = found;
    const doubts = answers.filter((it) => it.best && it.best.variant === best.variant).flatMap((it) => it.best.doubts);
    const notes = [];
    if (best.unused.length) notes.push(`unused by this build: ${namesOf(best.unused)}.`);
    return el("section", { class: "card", "aria-labelledby": "h-best" },
      el("h2", { id: "h-best" }, "Best build for this machine"),
      el("p", { class: "name", id: "best" }, best.variant.id),
      el("p", { class: "facts" }, about(best.variant)),
      forWhat,
      el("p", { id: "reason" }, `Why: ${best.reason}.`),
      ...[...new Set(doubts)].map((text) => el("p", { class: "doubt" }, text)),
      ...notes.map((text) => el("p", { class: "note" }, text)),
      ...commandsOf(best.variant));
  }

  function idealCard({ best, ideal }) {
    if (!ideal || (best && best.variant.id === ideal.variant.id)) return [];
    const where = ideal.isInMatrix ? "in the matrix" : "not in the matrix yet";
    return [el("section", { class: "card other", "aria-labelledby": "h-ideal" },
      el("h2", { id: "h-ideal" }, best ? `An even better build, ${where}` : `The build that it needs, ${where}`),
      el("p", { class: "name", id: "ideal" }, ideal.variant.id),
      el("p", { class: "facts" }, about(ideal.variant)),
      el("p", { id: "ideal-reason" }, `Why: ${ideal.reason}.`),
      ...(ideal.command ? [el("dl", { class: "commands" }, command("Add it", ideal.command,
        "Writes matrix.toml and the recipe; then build it."))] : commandsOf(ideal.variant)))];
  }

  function noneCard(found, forWhat) {
    const reasons = [...new Set(found.answers.flatMap((it) => it.gaps))];
    return el("section", { class: "card none", "aria-labelledby": "h-best" },
      el("h2", { id: "h-best" }, "No build runs on this machine"),
      el("p", { class: "name", id: "best" }, "none"),
      forWhat,
      ...(reasons.length ? [el("p", {}, "What is missing:"), list("ul", reasons)] : []));
  }

  function joined(misses) {
    const subjects = new Map();
    for (const { subject, text } of misses) subjects.set(text, [...(subjects.get(text) || []), subject]);
    return [...subjects].map(([text, several]) => [el("b", {}, several.join(", ")), `: ${text}`]);
  }

  /* What comes next and why not the others, for the GPUs of one kind. */
  function details(one, isOnly) {
    const which = isOnly ? "" : ` on ${namesOf(one.gpus)}`;
    const next = one.fallbacks.map((it) => [el("b", {}, it.variant.id), `: ${rules.whyFallback(it, one.best)}`]);
    const shown = next.slice(0, mostShown);
    const rest = next.length > mostShown ? [folded(`${next.length - mostShown} more`, false, list("ul", next.slice(mostShown)))] : [];
    const parts = [];
    if (!isOnly) parts.push(el("p", {}, `Best${which}: `, el("b", {}, one.best ? one.best.variant.id : "none")));
    if (next.length) parts.push(folded(`What comes next${which}`, isOnly, list("ol", shown), ...rest));
    if (one.nearMisses.length) parts.push(folded(`Why not the others${which}`, isOnly, list("ul", joined(one.nearMisses))));
    return parts;
  }

  /* GPUs that share a package with their CPU, named with another CPU. */
  function strangers({ gpus, platform }) {
    const hosts = (gpu) => Object.values(facts.gpus).find((it) => it.capabilities[0] === gpu.capability)?.hosts;
    const wrong = gpus.filter((gpu) => hosts(gpu) && !(platform in hosts(gpu)) && !("x86_64-linux" in hosts(gpu)));
    return [...new Set(wrong.map((gpu) => `${gpu.name} exists on ${Object.keys(hosts(gpu)).join(" and ")} only, `
      + `and this CPU is of ${platform}: check the CPU.`))];
  }

  function showAnswer(found, forWhat, strange) {
    const { best, ideal, answers, forAll, remarks } = found;
    const waits = answers.map((it) => it.waitsForDriver).filter(Boolean);
    const notes = [...strange, ...new Set(waits.map((it) => `${it.variant.id} needs a newer driver: ${it.obstacles[0].text}.`))];
    if (ideal && ideal.afterDriverUpdate && !waits.some((it) => it.variant.id === ideal.afterDriverUpdate)) {
      notes.push(`With a newer driver the best would be ${ideal.afterDriverUpdate}.`);
    }
    if (answers.length > 1 && !forAll) notes.push("No build of the matrix runs on all of these GPUs.");
    if (best) notes.push(...new Set(answers.flatMap((it) => it.gaps)));
    notes.push(...remarks.map((text) => `${text}.`));
    answer.replaceChildren(
      best ? bestCard(found, forWhat) : noneCard(found, forWhat),
      ...idealCard(found),
      ...(notes.length ? [el("div", { id: "notes" }, ...notes.map((text) => el("p", { class: "note" }, text)))] : []),
      ...answers.flatMap((one) => details(one, answers.length === 1)),
    );
    mark(best && best.variant.id, ideal && ideal.variant.id);
    say(best ? `Best: ${best.variant.id}` : "No build runs on this machine.");
  }

  /* Without a CPU: the best for each ISA, and the CPUs that have it. */
  function showByIsa(machine) {
    const keys = Object.keys(facts.cpus).filter((key) => facts.cpus[key].platform === machine.platform)
      .sort((a, b) => facts.cpus[b].level - facts.cpus[a].level);
    const rows = keys.map((key) => {
      const { machine: whole } = reader.machineOf({ ...fields(), cpu: key });
      const { best } = rules.recommend(whole);
      const link = el("a", { href: hash({ ...fields(), cpu: key }) }, facts.cpus[key].cpus.join(", "));
      return el("tr", {}, el("th", { scope: "row" }, link), el("td", {}, facts.cpus[key].title),
        el("td", {}, best ? best.variant.id : "none"));
    });
    const head = ["CPU", "Instruction set", "Best build"].map((text) => el("th", { scope: "col" }, text));
    answer.replaceChildren(el("section", { class: "card ask", "aria-labelledby": "h-best" },
      el("h2", { id: "h-best" }, "Which CPU? The build depends on it"),
      el("div", { class: "scroll", role: "group", "aria-labelledby": "h-best", tabindex: "0" },
        el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)))));
    mark();
    say("Name the CPU: the build depends on it.");
  }

  const summary = document.getElementById("summary");
  const say = (text) => { if (summary.textContent !== text) summary.textContent = text; };

  /* --- the map --- */

  const cells = [...document.querySelectorAll(".map a")];

  function mark(best, wanted) {
    for (const cell of cells) {
      const name = cell.querySelector("b").textContent;
      cell.classList.toggle("chosen", name === best || name === wanted);
      cell.classList.toggle("wanted", name === wanted && name !== best);
      if (name === best) cell.setAttribute("aria-current", "true");
      else cell.removeAttribute("aria-current");
    }
  }

  /* One stop of the Tab key for each table; the arrow keys move inside it. */
  for (const table of document.querySelectorAll(".map")) {
    const rows = [...table.tBodies[0].rows].map((row) => [...row.querySelectorAll("a")]);
    rows.flat().forEach((cell) => { cell.tabIndex = -1; });
    if (rows.length) rows[0][0].tabIndex = 0;
    table.addEventListener("keydown", (event) => {
      const at = rows.findIndex((row) => row.includes(event.target));
      if (at < 0) return;
      const column = rows[at].indexOf(event.target);
      const target = {
        ArrowRight: () => rows[at][column + 1], ArrowLeft: () => rows[at][column - 1],
        ArrowDown: () => rows[at + 1]?.[column], ArrowUp: () => rows[at - 1]?.[column],
        Home: () => rows[at][0], End: () => rows[at].at(-1),
      }[event.key];
      if (!target) return;
      event.preventDefault();
      const next = target();
      if (!next) return;
      rows.flat().forEach((cell) => { cell.tabIndex = -1; });
      next.tabIndex = 0;
      next.focus();
    });
  }

  /* --- the form and the address --- */

  const fields = () => Object.fromEntries(names.map((name) => [name, form.elements[name].value]));

  function hash(values) {
    const found = new URLSearchParams();
    for (const name of names) if (values[name].trim()) found.set(name, values[name].trim());
    return String(found) ? `#${found}` : "#";
  }

  function show() {
    const values = fields();
    const { machine, isPartial, problems, says } = reader.machineOf(values);
    for (const name of names) {
      document.getElementById(`${name}-wrong`).textContent = problems[name].join(" ");
      form.elements[name].setAttribute("aria-invalid", String(problems[name].length > 0));
    }
    const isWrong = problems.gpu.length || problems.driver.length;
    document.title = "Which PyTorch build is mine?";
    if (isWrong || names.every((name) => !values[name].trim())) {
      answer.replaceChildren();
      mark();
      say("");
    } else if (isPartial) {
      showByIsa(machine);
    } else {
      const found = rules.recommend(machine);
      showAnswer(found, understood(machine, says), strangers(machine));
      if (found.best) document.title = `${found.best.variant.id}: which PyTorch build is mine?`;
    }
  }

  function fill() {
    const values = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    for (const name of names) form.elements[name].value = (values.get(name) || "").slice(0, 4000);
    show();
  }

  /* Each finished change is a step of the history, so that Back returns to the answer before. */
  function remember() {
    const wanted = hash(fields());
    if ((location.hash || "#") !== wanted) history.pushState(null, "", wanted);
  }

  form.addEventListener("input", (event) => { if (names.includes(event.target.name)) show(); });
  form.addEventListener("change", (event) => { if (names.includes(event.target.name)) remember(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    remember();
  });
  form.addEventListener("reset", () => setTimeout(() => {
    document.getElementById("paste-wrong").textContent = "";
    show();
    remember();
    form.elements.gpu.focus();
  }));

  document.getElementById("paste").addEventListener("input", (event) => {
    const wrong = document.getElementById("paste-wrong");
    const text = event.target.value;
    const found = text.trim() ? reader.paste(text) : {};
    wrong.textContent = found ? "" : "Nothing in this text names a GPU, a CPU or a driver.";
    if (!found || !Object.keys(found).length) return;
    for (const [name, value] of Object.entries(found)) form.elements[name].value = value;
    show();
    remember();
  });

  window.addEventListener("popstate", fill);
  window.addEventListener("hashchange", () => {
    fill();
    if (location.hash.includes("=") && form.getBoundingClientRect().bottom < 0) answer.scrollIntoView();
  });

  form.hidden = false;
  fill();
})();
