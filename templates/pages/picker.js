(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const answers = makeAnswers(facts);
  const reader = makeReader(facts);
  const form = document.getElementById("machine");
  const answer = document.getElementById("answer");
  const names = [...form.querySelectorAll(".field input")].map((field) => field.name);

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

  const folded = (title, ...children) => el("details", { class: "more" }, el("summary", {}, title), ...children);

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

  /* A package of the index, with its defaults. */
  const named = (found) => ({ environment: ".", attribute: found.package, ...found });

  const placeOf = (environment) => (environment === "." ? "" : ` --dir ${environment}`);

  /* Packages that are compiled against this PyTorch, such as torchvision. */
  function companionsOf({ id, package: variant, companions: found }) {
    if (!found.length) return [];
    const ids = variant.companions.map((name) => `${id}+${name}`);
    const companions = found.map(named);
    const title = companions.map(({ about }) => about).join(" and ");
    const environments = [...new Set(companions.map(({ environment }) => environment))];
    const build = environments.map((each) => `flox build${placeOf(each)} ${
      companions.filter((it) => it.environment === each).map((it) => it.package).join(" ")}`);
    return [folded(`With ${title}`, el("dl", { class: "commands" },
      command("Build with Flox", build.join(" && ")),
      command("Build with Nix", `nix-build release.nix ${companions.map((it) => `-A ${it.attribute}`).join(" ")}`),
      command("Build and check", `invoke build ${ids.join(" ")}`)))];
  }

  /* No command installs what nobody may have published: the catalogue is asked first. */
  function publishedBy(name) {
    let stored = null;
    try { stored = localStorage.getItem("organization"); } catch { /* the browser keeps nothing */ }
    const organization = stored ?? facts.publisher;
    const field = el("input", { id: `organization-${name}`, value: organization, maxlength: "60", spellcheck: "false" });
    field.addEventListener("change", () => {
      try { localStorage.setItem("organization", field.value.trim()); } catch { return; }
      show();
    });
    const fold = folded("Has somebody published it?",
      el("p", { class: "facts" }, "Organizations publish packages with ", el("a", { href: "https://flox.dev" }, "Flox"), ". Name one, and ask its catalogue."),
      el("label", { for: `organization-${name}` }, "Organization "), field,
      /^[A-Za-z0-9][\w-]*$/.test(organization) ? el("dl", { class: "commands" }, command("Ask", `flox show ${organization}/${name}`)) : "");
    fold.open = stored !== null;
    return fold;
  }

  function commandsOf(build) {
    if (build.command) return [el("dl", { class: "commands" }, command("Add it", build.command, "Lines for matrix.toml, or the command that makes them; then run `invoke all` and build it."))];
    const { environment, package: name, attribute } = named(build.package);
    return [
      el("p", { class: "facts" }, "A recipe", ...(facts.repository ? [" of ", el("a", { href: facts.repository }, "this repository")] : []),
        "; this page knows of no build of it. Building it takes hours."),
      el("dl", { class: "commands" }, command("Build and check", `invoke build ${build.id}`)),
      folded("With Nix or Flox alone", el("dl", { class: "commands" },
        command("Build with Nix", `nix-build release.nix -A ${attribute}`),
        command("Build with Flox", `flox build${placeOf(environment)} ${name}`))),
      publishedBy(name),
      ...companionsOf(build)];
  }

  /* --- the answer --- */

  /* How the fields were understood, so that a wrong guess is seen. */
  function understood({ gpus, otherGpus, platform, driver, cuda, says }) {
    const kinds = [...new Set(gpus.map((gpu) => `${gpu.name} (capability ${gpu.capability})`)), ...otherGpus];
    const version = [driver && `driver ${driver}`, cuda && `CUDA ${cuda}`].filter(Boolean).join(" with ");
    return el("p", { class: "facts", id: "understood" }, "For ",
      [kinds.join(", ") || "no GPU", says || platform, version].filter(Boolean).join("; "), ".");
  }

  /* A build: what it is, why, and how to get it. */
  const buildCard = (title, id, build, kind, ...notes) => el("section", { class: `card ${kind}`, "aria-labelledby": `h-${id}` },
    el("h2", { id: `h-${id}` }, title),
    el("p", { class: "name", id }, build.id),
    el("p", { class: "facts" }, build.about),
    el("p", { id: `${id}-reason` }, `Why: ${build.reason}.`),
    ...build.doubts.map((text) => el("p", { class: "doubt" }, text)),
    ...notes, ...commandsOf(build));

  const wheelCard = ({ title, says, command: install }, compared) => el("section", { class: "card wheel", "aria-labelledby": "h-wheel" },
    el("h2", { id: "h-wheel" }, "The official wheel"),
    el("p", { class: "name", id: "wheel" }, title),
    el("p", { class: "facts" }, "Built by the PyTorch project. Installed in minutes."),
    el("p", { id: "wheel-reason" }, `${says.join("; ")}.`),
    el("dl", { class: "commands" }, command("Install", install, "Without uv: the same with pip in place of uv pip.")),
    el("p", { class: "facts" }, `The build beside it, against this wheel: ${compared}.`));

  const noneCard = () => el("section", { class: "card none", "aria-labelledby": "h-first" },
    el("h2", { id: "h-first" }, "No build runs on this machine"),
    el("p", { class: "name", id: "first" }, "none"));

  /* What the table does not have. */
  function showCommand(machine, forWhat) {
    const isSeveral = machine.kinds.length > 1;
    const [title, why] = isSeveral
      ? ["Several kinds of GPUs: ask the command", "It judges each kind, and names the build that serves all of them."]
      : ["A rare machine: ask the command", "The table of this page has the GPUs and CPUs that people have."];
    const text = reader.commandFor(machine);
    const help = text.includes(" --") ? "" : "On the machine itself.";
    answer.replaceChildren(el("section", { class: "card ask", "aria-labelledby": "h-first" },
      el("h2", { id: "h-first" }, title), forWhat, el("p", { id: "why-command" }, why),
      el("dl", { class: "commands" }, command("Ask", text, help))));
    mark();
    say(title);
  }

  /* What comes next, and why not the others. */
  function details({ next, rejected }) {
    const rows = next.map(({ id, why }) => [el("b", {}, id), `: ${why}`]);
    const reasons = rejected.map(({ subjects, why }) => [el("b", {}, subjects), `: ${why}`]);
    return [
      ...(rows.length ? [folded("What comes next", list("ol", rows))] : []),
      ...(reasons.length ? [folded("Why not the others", list("ul", reasons))] : []),
    ];
  }

  function showAnswer(found, machine, forWhat) {
    const { first, best, better, update, wheel, whyUnused, remarks } = found;
    const isUpdate = best?.id !== first?.id;
    const notes = [...reader.remarksOn(machine), ...remarks];
    if (update && !isUpdate) notes.unshift(`Better: ${update.says}, then ${update.id}`);
    const title = isUpdate ? `First ${update.says}; then this build` : "Best build for this machine";
    const pair = [first ? buildCard(title, "first", first, "") : noneCard(), ...(wheel ? [wheelCard(wheel, found.compared)] : [])];
    answer.replaceChildren(
      forWhat,
      ...[...machine.otherGpus.map(reader.otherSays), ...(whyUnused ? [whyUnused] : [])].map((text) => el("p", { class: "note first" }, `${text}.`)),
      el("div", { class: "answers" }, ...(found.isWheelFirst ? pair.reverse() : pair),
        ...(best && isUpdate ? [buildCard("Until then", "until", best, "other")] : []),
        ...(better ? [buildCard(`An even better build, ${better.package ? "in the matrix" : "not in the matrix yet"}`, "better", better, "other")] : [])),
      ...(notes.length ? [el("div", { id: "notes" }, ...notes.map((text) => el("p", { class: "note" }, `${text}.`)))] : []),
      ...details(found),
    );
    mark(first?.id, better?.id);
    say(first ? `Best: ${first.id}` : "No build runs on this machine.");
  }

  /* Without a CPU: the best for each ISA, and the CPUs that have it. */
  function showByIsa(machine) {
    const here = facts.cpus.filter((cpu) => cpu.platform === machine.platform && cpu.cpus.length);
    const rows = here.map(({ key, title, cpus }) => {
      const found = answers.lookUp({ ...machine, cpu: key });
      const known = Object.values(facts.processors).filter((it) => it.cpu === key).map((it) => it.title);
      const link = el("a", { href: hash({ ...fields(), cpu: key }) }, (known.length ? known : cpus).join("; "));
      return el("tr", {}, el("th", { scope: "row" }, link), el("td", {}, title),
        el("td", {}, found?.first?.id ?? "none"));
    });
    const head = ["CPU", "Instruction set", "Best build"].map((text) => el("th", { scope: "col" }, text));
    answer.replaceChildren(el("section", { class: "card ask", "aria-labelledby": "h-first" },
      el("h2", { id: "h-first" }, "Which CPU? The build depends on it"),
      el("div", { class: "scroll", role: "group", "aria-labelledby": "h-first", tabindex: "0" },
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

  /* --- the form and the address --- */

  const fields = () => Object.fromEntries(names.map((name) => [name, form.elements[name].value]));

  function hash(values) {
    const found = new URLSearchParams();
    for (const name of names) if (values[name].trim()) found.set(name, values[name].trim());
    return String(found) ? `#${found}` : "#";
  }

  function show() {
    const values = fields();
    const { machine, problems } = reader.machineOf(values);
    for (const name of names) {
      document.getElementById(`${name}-wrong`).textContent = problems[name].join(" ");
      form.elements[name].setAttribute("aria-invalid", String(problems[name].length > 0));
    }
    const isWrong = problems.gpu.length || problems.driver.length;
    const isSeveral = machine.kinds.length > 1;
    const found = isWrong || isSeveral || machine.isOdd || !machine.cpu ? null : answers.lookUp(machine);
    document.title = "Which PyTorch build is mine?";
    if (isWrong || names.every((name) => !values[name].trim())) {
      answer.replaceChildren();
      mark();
      say("");
    } else if (found) {
      showAnswer(found, machine, understood(machine));
      if (found.first) document.title = `${found.first.id}: which PyTorch build is mine?`;
    } else if (isSeveral || machine.cpu || !Object.hasOwn(facts.table, machine.kind)) {
      showCommand(machine, understood(machine));
    } else {
      showByIsa(machine);
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
    if (found?.driver === "none") wrong.textContent = "No NVIDIA driver runs there: install one first. The answer says which.";
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
