"use strict";
/* The rules of `invoke recommend` for the page: the same functions in the same order as resolver.py,
   ideal.py, explain.py and remarks.py in build_pytorch/hardware/. The facts are in `facts`, which
   build_pytorch/generate/picker.py writes. A change there needs the same change here:
   tests/test_picker.py compares both on hundreds of machines. */
function makeRules(facts) {
  const unknownFlags = "the CPU's flags are unknown";

  /* --- versions and capabilities: base/versions.py, matrix/compatibility.py --- */

  const parts = (version) => (/^\d{1,9}(\.\d{1,9})*/.exec(version) || [""])[0].split(".").filter(Boolean).map(Number);
  const digits = (version) => version.replaceAll(".", "");

  /* Compare lists of numbers; with `fill`, missing ones are 0, as in versions. */
  function compareLists(a, b, fill) {
    for (let i = 0; i < Math.max(a.length, b.length); i += 1) {
      if (!fill && (i >= a.length || i >= b.length)) return a.length - b.length;
      const difference = Number(a[i] ?? 0) - Number(b[i] ?? 0);
      if (difference) return difference;
    }
    return 0;
  }
  const compareVersions = (a, b) => compareLists(parts(a), parts(b), true);
  const compareNumbers = (a, b) => compareLists(parts(a), parts(b), false);
  const isTegra = (...capabilities) => capabilities.some((each) => facts.tegra.includes(each));

  function runsOn(built, device) {
    const [builtMajor, builtMinor] = built.split(".").map(Number);
    const [major, minor] = device.split(".").map(Number);
    if (built !== device && isTegra(built, device)) return null;
    if (builtMajor !== major || builtMinor > minor) return null;
    return builtMinor === minor ? "exact" : "compatible";
  }

  function fit(gpu, device) {
    const found = gpu.capabilities.map((each) => runsOn(each, device));
    if (found.includes("exact")) return "exact";
    const fromPtx = gpu.ptx && compareLists(device.split("."), gpu.capabilities.at(-1).split("."), true) > 0;
    return found.includes("compatible") || fromPtx ? "compatible" : null;
  }

  const compiles = (cuda, gpu) => Boolean(cuda) && compareNumbers(gpu.first, cuda.version) <= 0
    && compareNumbers(cuda.version, gpu.last || cuda.version) <= 0;
  const words = (text) => text.split(/\s+/).filter(Boolean);
  const unique = (items) => [...new Set(items)];
  const missingFlags = (cpu, flags) => cpu.flags.filter((flag) => !flags.includes(flag));
  const lowest = (items, compare) => items.reduce((a, b) => (compare(b, a) < 0 ? b : a));
  const highest = (items, compare) => items.reduce((a, b) => (compare(b, a) > 0 ? b : a));

  function combined(several) {
    const hosts = {};
    for (const platform of Object.keys(several[0].hosts)) {
      if (several.every((part) => part.hosts[platform])) {
        hosts[platform] = unique(several.flatMap((part) => part.hosts[platform]));
      }
    }
    const last = several.map((part) => part.last).filter(Boolean);
    const drivers = several.map((part) => part.driver).filter(Boolean);
    const capabilities = several.map((part) => part.capabilities[0]);
    return {
      capabilities,
      archList: capabilities.join(";"),
      isSingle: false,
      ptx: false,
      hosts,
      products: unique(Object.values(hosts).flat()),
      first: highest(several.map((part) => part.first), compareNumbers),
      last: last.length ? lowest(last, compareNumbers) : null,
      driver: drivers.length ? highest(drivers, compareNumbers) : null,
    };
  }

  /* --- variants: matrix/model.py --- */

  function makeVariant(releaseName, gpuKey, gpu, cpuKey, { isQualified, sharing = 0, isWrapper = false }) {
    const release = facts.releases[releaseName];
    const cpu = facts.cpus[cpuKey];
    const isMps = !gpuKey && cpu.platform.endsWith("-darwin");
    const ending = isWrapper ? "-wrapper" : "";
    const shortId = isMps ? "darwin-mps" : `${gpuKey || "cpu"}-${cpuKey}${ending}`;
    const place = isMps ? release.mps : gpuKey ? `${release.gpu}-${gpuKey}-${cpuKey}` : `${release.cpu}-${cpuKey}`;
    const suffix = `${place}${release.suffix}${ending}`;
    const oldest = gpu && release.cuda
      ? highest([release.cuda.driver, ...(gpu.driver ? [gpu.driver] : [])], compareNumbers) : "";
    const packageName = `${release.package}-${suffix}`;
    const attribute = (name, bit) => (sharing & (1 << bit) ? `${releaseName}-${name}` : name);
    return {
      id: isQualified ? `${releaseName}/${shortId}` : shortId,
      shortId,
      releaseName,
      release,
      gpuKey,
      gpu,
      cpuKey,
      cpu,
      kind: gpuKey ? "gpu" : isMps ? "mps" : "cpu-only",
      package: packageName,
      attribute: attribute(packageName, 0),
      companions: Object.entries(release.companions).map(([name, { version, environment }], number) => ({
        name,
        version,
        environment,
        package: `${name}-${suffix}`,
        attribute: attribute(`${name}-${suffix}`, number + 1),
      })),
      cuda: gpu ? release.cuda : null,
      driver: oldest,
      impossible: gpu && !(cpu.platform in gpu.hosts)
        ? `no ${cpu.platform} machine has ${gpuKey.toUpperCase()}: ${gpu.products.join(", ")} on `
          + `${Object.keys(gpu.hosts).join(" and ")} only` : "",
      preference: [
        Number(Boolean(gpu)), Number(!release.isNightly), release.rank,
        ...(gpu ? gpu.capabilities[0] : "0.0").split(".").map(Number),
        Number(!gpu || gpu.isSingle), cpu.level, Number(!isWrapper),
      ],
    };
  }

  const variants = facts.variants.map(([release, gpuKey, cpuKey, sharing, isWrapper]) =>
    makeVariant(release, gpuKey, gpuKey && facts.gpus[gpuKey], cpuKey,
      { isQualified: facts.isQualified, sharing, isWrapper }));
  const existing = new Map(variants.map((variant) => [variant.id, variant]));
  const comparePreference = (a, b) => compareLists(a.preference, b.preference, true);

  /* --- what runs: hardware/resolver.py --- */

  function whyNot(variant, capability) {
    const built = variant.gpu.capabilities[0];
    let what = "a higher minor version";
    if (!variant.gpu.isSingle) return `built for ${variant.gpu.archList}, and this GPU has ${capability}`;
    if (built.split(".")[0] !== capability.split(".")[0]) what = "another major version";
    else if (isTegra(built, capability)) {
      return `Tegra GPUs run only code built for them, and this GPU has ${capability}`;
    }
    return `built for ${what} than this GPU's ${capability}`;
  }

  /* Return the obstacles and doubts of the driver; `machine` has `driver` and `cuda` or null. */
  function driverLimits(machine, variant, gpu) {
    const { version } = variant.release.cuda;
    const oldest = variant.driver;
    const newest = machine.cuda;
    let { driver } = machine;
    const whose = oldest === variant.release.cuda.driver ? `CUDA ${version}` : variant.gpuKey.toUpperCase();
    const needs = `${whose} needs driver ${oldest} or newer`;
    const doubt = (text) => [{ doubt: text }];
    const obstacle = (text) => [{ kind: "driver", subject: variant.releaseName, text }];
    if (driver && /^\d+$/.test(driver) && driver === oldest.split(".")[0]) {
      return doubt(`driver ${driver}: ${needs}`);
    }
    if (driver && compareVersions(driver, oldest) >= 0 && !(machine.isWsl && newest)) return [];
    const isEnough = Boolean(newest) && compareVersions(newest, version) >= 0;
    if (machine.isWsl && newest) {
      if (isEnough || newest.split(".")[0] === version.split(".")[0]) return [];
      driver = null;
    }
    if (isEnough && driver && facts.consumer.some((word) => gpu.name.toLowerCase().includes(word))) {
      return obstacle(`${needs}; found ${driver}; a libcuda newer than the driver does not run on this GPU (error 804)`);
    }
    if (isEnough) return driver ? doubt(`driver ${driver} is older than ${oldest}, but supports CUDA ${newest}`) : [];
    if (driver || newest) return obstacle(`${needs}; found driver ${driver || `for CUDA ${newest}`}`);
    return doubt(`the driver version is unknown; ${needs}`);
  }

  function limits(machine, variant, gpu, runs) {
    const found = [];
    const { platform } = variant.cpu;
    const flags = words(machine.flags);
    if (platform !== machine.platform) {
      found.push({ kind: "platform", subject: platform, text: `this machine is ${machine.platform}` });
    } else {
      const missing = missingFlags(variant.cpu, flags);
      const text = flags.length ? `the CPU lacks ${missing.join(", ")}` : unknownFlags;
      if (missing.length) found.push({ kind: "flags", subject: variant.cpuKey, text });
    }
    if (!variant.gpu) return found;
    if (variant.impossible) found.push({ kind: "host", subject: variant.gpuKey, text: variant.impossible });
    if (!gpu || gpu.capability === null) {
      const text = gpu ? `the capability of GPU ${gpu.index} is unknown; add it to a description`
        : "no GPU with a working driver";
      found.push({ kind: "gpu", subject: "GPU variants", text });
    } else if (runs === null) {
      found.push({ kind: "capability", subject: variant.gpuKey, text: whyNot(variant, gpu.capability) });
    }
    if (gpu && variant.release.cuda) found.push(...driverLimits(machine, variant, gpu));
    return found;
  }

  function candidate(machine, variant, gpu) {
    const runs = variant.gpu && gpu && gpu.capability !== null ? fit(variant.gpu, gpu.capability) : null;
    const found = limits(machine, variant, gpu, runs);
    return {
      variant,
      gpu,
      grade: variant.gpu ? runs || "exact" : "cpu-only",
      obstacles: found.filter((it) => it.kind),
      doubts: found.filter((it) => it.doubt).map((it) => it.doubt),
    };
  }

  function gpuGaps(machine, gpu, isas) {
    const { capability } = gpu;
    const fitting = facts.matrixGpus.filter((key) => fit(facts.gpus[key], capability));
    const keys = fitting.filter((key) => machine.platform in facts.gpus[key].hosts);
    if (!fitting.length) {
      const only = isTegra(capability) ? "; Jetson and DRIVE GPUs run only code built for them" : "";
      return [`no GPU architecture of the matrix runs on capability ${capability} (${gpu.name})${only}`];
    }
    if (!keys.length) {
      return [`${fitting.join(", ")} would run on capability ${capability} (${gpu.name}), `
        + `but the matrix has no ${machine.platform} host for it`];
    }
    if (!variants.some((it) => keys.includes(it.gpuKey) && isas.includes(it.cpuKey))) {
      const key = highest(keys, (a, b) =>
        compareVersions(facts.gpus[a].capabilities[0], facts.gpus[b].capabilities[0]));
      return [`${key}-${isas[0]} would run, but no group of the matrix has it`];
    }
    return [];
  }

  function gaps(machine, gpu, best) {
    if (best && (!gpu || best.variant.gpu)) return [];
    const flags = words(machine.flags);
    const isas = facts.matrixCpus.filter((key) => facts.cpus[key].platform === machine.platform)
      .sort((a, b) => facts.cpus[b].level - facts.cpus[a].level);
    const fitting = isas.filter((key) => !missingFlags(facts.cpus[key], flags).length);
    if (!isas.length) {
      const platforms = unique(facts.matrixCpus.map((key) => facts.cpus[key].platform)).join(" and ");
      return [`no variant is for ${machine.platform}, only for ${platforms}`];
    }
    if (!flags.length) return [`${unknownFlags}, so it is unknown which CPU ISA of the matrix fits`];
    if (!fitting.length) {
      const last = isas.at(-1);
      return [`no CPU ISA of the matrix fits: the lowest, ${last}, needs ${facts.cpus[last].flags.join(", ")}`];
    }
    const found = gpu && gpu.capability !== null ? gpuGaps(machine, gpu, fitting) : [];
    const cpuOnly = variants.filter((it) => !it.gpu).map((it) => it.cpuKey);
    if (!best && !fitting.some((key) => cpuOnly.includes(key))) {
      found.push(`cpu-${fitting[0]} would run without a GPU, but no group of the matrix has it`);
    }
    return found;
  }

  function nearMisses(candidates) {
    const found = new Map();
    for (const isGpu of [true, false]) {
      const lists = candidates.filter((it) => Boolean(it.variant.gpu) === isGpu).map((it) => it.obstacles);
      const fewest = Math.min(...lists.map((it) => it.length).filter(Boolean));
      for (const list of lists.filter((it) => it.length === fewest)) {
        for (const it of list) found.set(JSON.stringify([it.kind, it.subject, it.text]), it);
      }
    }
    return [...found.values()];
  }

  function answerFor(machine, gpus) {
    const gpu = gpus[0] || null;
    const candidates = variants.map((variant) => candidate(machine, variant, gpu));
    const waits = (it) => it.obstacles.length === 1 && it.obstacles[0].kind === "driver";
    const ranking = candidates.filter((it) => !it.obstacles.length || waits(it)).sort((a, b) =>
      comparePreference(b.variant, a.variant) || a.obstacles.length - b.obstacles.length);
    const accepted = ranking.filter((it) => !it.obstacles.length);
    const best = accepted[0] || null;
    return {
      gpus,
      candidates,
      best,
      fallbacks: accepted.slice(1),
      waitsForDriver: ranking.length && ranking[0] !== best ? ranking[0] : null,
      gaps: gaps(machine, gpu, best),
      nearMisses: nearMisses(candidates),
    };
  }

  function groupsOf(gpus) {
    const kinds = new Map();
    for (const gpu of gpus) kinds.set(gpu.capability, [...(kinds.get(gpu.capability) || []), gpu]);
    return kinds.size ? [...kinds.values()] : [[]];
  }

  function resolve(machine) {
    const answers = groupsOf(machine.gpus).map((gpus) => answerFor(machine, gpus));
    const shared = answers.length < 2 ? [] : variants.filter((variant, number) =>
      variant.gpu && answers.every((answer) => !answer.candidates[number].obstacles.length));
    return { answers, forAll: shared.length ? highest(shared, comparePreference) : null };
  }

  /* --- reasons: hardware/explain.py --- */

  function gpuCode({ variant, gpu, grade }) {
    if (!variant.gpu) return gpu ? "leaves the GPU unused" : "no GPU";
    const built = variant.gpu.archList;
    if (grade === "exact") return `built for exactly this GPU's capability ${built}`;
    return `built for capability ${built}, which runs on ${gpu && gpu.capability}`;
  }

  const whyBest = (best) => `${gpuCode(best)}; ${best.variant.cpu.title}`;

  function whyFallback(fallback, best) {
    const [variant, other] = [fallback.variant, best.variant];
    const found = [];
    if (variant.releaseName !== other.releaseName) found.push(`PyTorch ${variant.release.torch}`);
    if (variant.gpuKey !== other.gpuKey) found.push(gpuCode(fallback));
    if (variant.cpuKey !== other.cpuKey) {
      const isBelow = variant.cpu.level < other.cpu.level;
      found.push(`${variant.cpu.title}, ${isBelow ? "a lower" : "the higher"} level`);
    }
    return found.join("; ") || "the same in another group";
  }

  /* --- the best of the matrix and the ideal: hardware/ideal.py --- */

  function bestOf({ answers, forAll }) {
    const found = answers.filter((answer) => answer.best);
    if (!found.length) return null;
    const gpus = answers.flatMap((answer) => answer.gpus);
    const choice = { unused: [], isInMatrix: true, afterDriverUpdate: "", command: "" };
    if (forAll) {
      const reason = `code for ${forAll.gpu.archList} runs on all GPUs; ${forAll.cpu.title}`;
      return { ...choice, variant: forAll, gpus, reason };
    }
    const first = highest(found, (a, b) => comparePreference(a.best.variant, b.best.variant));
    const used = first.best.variant.gpu ? first.gpus : [];
    const unused = gpus.filter((gpu) => !used.includes(gpu));
    return { ...choice, variant: first.best.variant, gpus: used, unused, reason: whyBest(first.best) };
  }

  const isaReason = ({ cpu }) => (cpu.flags.length ? `${cpu.title}, the highest ISA that the CPU has` : cpu.title);

  class Space {
    constructor(machine) {
      this.machine = machine;
      const names = Object.keys(facts.releases);
      this.releases = names.filter((name) => !facts.releases[name].isOther);
      this.others = names.filter((name) => facts.releases[name].isOther);
      const flags = words(machine.flags);
      this.isas = Object.keys(facts.cpus).filter((key) =>
        facts.cpus[key].platform === machine.platform && !missingFlags(facts.cpus[key], flags).length);
    }

    fitting(capability) {
      return Object.entries(facts.gpus).filter(([, gpu]) => capability !== null && fit(gpu, capability));
    }

    * variants(releases, gpus) {
      for (const name of releases) {
        const { cuda, isOther } = facts.releases[name];
        for (const [key, gpu] of gpus) {
          if (gpu && !compiles(cuda, gpu)) continue;
          for (const cpuKey of this.isas) {
            yield makeVariant(name, key, gpu, cpuKey, { isQualified: facts.isQualified || isOther });
          }
        }
      }
    }

    /* The best of those that run on all GPUs; of equal ones, one that exists. */
    bestAmong(found, gpus) {
      const on = gpus.length ? gpus : [null];
      const running = [...found].filter((variant) =>
        on.every((gpu) => !candidate(this.machine, variant, gpu).obstacles.length));
      if (!running.length) return null;
      return highest(running, (a, b) =>
        comparePreference(a, b) || Number(existing.has(a.id)) - Number(existing.has(b.id)));
    }

    choose(gpus) {
      const without = this.bestAmong(this.variants(this.releases, [[null, null]]), []);
      for (const releases of [this.releases, this.others]) {
        const found = gpus.length ? this.forGpus(releases, gpus) : null;
        if (found) return found;
      }
      if (!without) return null;
      const isa = isaReason(without);
      if (without.kind === "mps") return this.choice(without, [], gpus, `Metal is the GPU of macOS; ${isa}`);
      let why = "no GPU";
      if (gpus.length) why = unique(gpus.map((gpu) => this.whyUnused(gpu))).join("; ");
      else if (this.machine.otherGpus.length) why = "no NVIDIA GPU";
      return this.choice(without, [], gpus, `CPU-only: ${why}; ${isa}`);
    }

    forGpus(releases, gpus) {
      const kinds = new Map(gpus.filter((gpu) => gpu.capability !== null).map((gpu) => [gpu.capability, gpu]));
      const single = new Map([...kinds].map(([capability, gpu]) =>
        [capability, this.bestAmong(this.variants(releases, this.fitting(capability)), [gpu])]));
      const usable = [...kinds.keys()].filter((each) => single.get(each)).map((each) => kinds.get(each));
      if (!usable.length) return null;
      const fitting = new Map(usable.flatMap((gpu) => this.fitting(gpu.capability)));
      let used = usable;
      let chosen = this.bestAmong(this.variants(releases, fitting), usable);
      if (!chosen) {
        const several = this.several(usable.map((gpu) => gpu.capability));
        chosen = this.bestAmong(this.variants(releases, several), usable);
      }
      if (!chosen) {
        used = [highest(usable, (a, b) => compareNumbers(a.capability, b.capability))];
        chosen = single.get(used[0].capability);
      }
      const capabilities = used.map((gpu) => gpu.capability);
      const rest = gpus.filter((gpu) => !capabilities.includes(gpu.capability));
      const reason = [...this.gpuReasons(chosen, used, rest), isaReason(chosen)].join("; ");
      return this.choice(chosen, gpus.filter((gpu) => !rest.includes(gpu)), rest, reason);
    }

    /* One architecture for GPUs that no single one serves, without what others cover. */
    several(capabilities) {
      const ordered = unique(capabilities).sort(compareNumbers);
      const needed = ordered.filter((each) => !ordered.some((other) => other !== each && runsOn(other, each)));
      const keys = needed.map((each) => `sm${digits(each)}`);
      if (keys.length < 2 || !keys.every((key) => facts.gpus[key])) return [];
      return [[`sm${needed.map(digits).join("_")}`, combined(keys.map((key) => facts.gpus[key]))]];
    }

    choice(variant, gpus, unused, reason) {
      const isInMatrix = existing.has(variant.id);
      let command = `invoke add ${variant.id}`;
      if (facts.releases[variant.releaseName].isOther) {
        const like = facts.newest;
        const added = `invoke add release ${variant.releaseName} --like ${like} --cuda ${variant.release.cuda.version}`;
        const inherited = variants.filter((it) => it.releaseName === like).map((it) => it.shortId);
        command = inherited.includes(variant.shortId) ? added : `${added} && ${command}`;
      }
      return {
        variant: existing.get(variant.id) || variant,
        gpus, unused, isInMatrix, reason, afterDriverUpdate: "", command: isInMatrix ? "" : command,
      };
    }

    gpuReasons(variant, used, rest) {
      const { gpu, release } = variant;
      if (!gpu || !release.cuda) return [];
      const found = unique(used.map((each) => each.capability));
      const reasons = [];
      if (found.length > 1 && !gpu.isSingle) {
        reasons.push(`code for ${gpu.archList}, as no single architecture runs on all GPUs`);
      } else if (found.length > 1) {
        reasons.push(`code for ${gpu.archList} runs on all GPUs: ${found.join(" and ")}`);
      } else {
        const isExact = gpu.capabilities.includes(found[0]);
        reasons.push(`code for ${gpu.archList}, ${isExact ? "exactly" : "which runs on"} ${found[0]}`);
      }
      reasons.push(`PyTorch ${release.torch} on CUDA ${release.cuda.version}`, ...this.whyNoNewer(variant, used));
      if (found.length > 1) {
        const keys = gpu.capabilities.map((each) => `sm${digits(each)}`);
        for (const [rule, why] of Object.entries(facts.rules)) {
          if ((release.capabilityRules[rule] || []).some((key) => key === variant.gpuKey || keys.includes(key))) {
            reasons.push(`rule ${rule} holds for all GPUs of the build: ${why}`);
          }
        }
      }
      for (const each of rest) reasons.push(`GPU ${each.index} stays unused: ${this.whyUnused(each)}`);
      return reasons;
    }

    whyNoNewer(variant, used) {
      const reasons = [];
      for (const name of this.releases) {
        const { cuda, rank, isNightly } = facts.releases[name];
        if (rank <= variant.release.rank || isNightly || !cuda) continue;
        if (!compiles(cuda, variant.gpu)) {
          reasons.push(`not ${name}: CUDA ${cuda.version} does not compile for ${variant.gpu.archList}`);
          continue;
        }
        const other = makeVariant(name, variant.gpuKey, variant.gpu, variant.cpuKey, { isQualified: true });
        const limit = used.map((gpu) => candidate(this.machine, other, gpu).obstacles[0]).find(Boolean);
        if (limit) reasons.push(`not ${name}: ${limit.text}`);
      }
      return reasons;
    }

    whyUnused(gpu) {
      if (gpu.capability === null) return `the capability of ${gpu.name} is unknown`;
      const fitting = this.fitting(gpu.capability);
      const cudas = this.releases.map((name) => facts.releases[name].cuda).filter(Boolean);
      if (!fitting.length) {
        const known = facts.known.gpus[`sm${digits(gpu.capability)}`];
        const why = known && known.unsupported ? `: ${known.unsupported}` : "";
        return `nothing runs on ${gpu.name}, capability ${gpu.capability}${why}`;
      }
      if (!fitting.some(([, it]) => cudas.some((cuda) => compiles(cuda, it)))) {
        return `no CUDA of these releases compiles for ${gpu.name} (${gpu.capability})`;
      }
      for (const variant of this.variants(this.releases, fitting)) {
        const [limit] = candidate(this.machine, variant, gpu).obstacles;
        if (limit) return limit.text;
      }
      return `no ISA fits the CPU beside ${gpu.name}`;
    }
  }

  function ideal(machine) {
    const choice = new Space(machine).choose(machine.gpus);
    if (!choice || !machine.gpus.length) return choice;
    const later = new Space({ ...machine, driver: "9999", cuda: null, isWsl: false }).choose(machine.gpus);
    if (later && comparePreference(later.variant, choice.variant) > 0) {
      return { ...choice, afterDriverUpdate: later.variant.id };
    }
    return choice;
  }

  /* --- names of products: matrix/known_hardware.py --- */

  const suffix = `(?:${facts.known.suffix})?`;

  function named(table, name, vendor) {
    const plain = words(name.toLowerCase().replace(new RegExp(vendor, "gi"), " ")).join(" ");
    let best = null;
    for (const [key, { names }] of Object.entries(table)) {
      for (const pattern of names) {
        const match = new RegExp(`^(${pattern})${suffix}$`).exec(plain);
        const rank = match && [match[1].length, key];
        if (rank && (!best || rank[0] > best[0] || (rank[0] === best[0] && rank[1] > best[1]))) best = rank;
      }
    }
    return best ? table[best[1]] : null;
  }
  const gpuNamed = (name) => named(facts.known.gpus, name, facts.known.gpuVendor);

  /* A name without what does not count in a short one. */
  const bare = (name) =>
    name.toLowerCase().replace(/[^a-z0-9]/g, "").replace(new RegExp(facts.known.gpuFiller, "g"), "");
  const products = Object.values(facts.known.gpus).flatMap((gpu) =>
    gpu.products.map((product) => ({ text: bare(product), name: product, capability: gpu.capability })));

  /* { name, capability } of the GPU that a person means, such as "rtx4090" or "4090"; null if none. */
  function gpuTyped(name) {
    const known = gpuNamed(name);
    if (known) return { name, capability: known.capability };
    const wanted = bare(name);
    const same = products.find(({ text }) => text === wanted);
    if (same) return same;
    const like = Object.values(facts.known.gpus).find(({ names }) =>
      names.some((pattern) => new RegExp(`^(?:${pattern.replaceAll(" ", "")})$`).test(wanted)));
    if (like) return { name, capability: like.capability };
    if (!new RegExp(`^(?:${facts.known.gpuNumber})$`).test(wanted)) return null;
    const ends = products.filter(({ text }) =>
      text.endsWith(wanted) && text !== wanted && !/\d$/.test(text.slice(0, -wanted.length)));
    return new Set(ends.map((each) => each.capability)).size === 1 ? ends[0] : null;
  }

  /* Names of products that have a number of a name in them, to suggest. */
  function gpusLike(name) {
    const numbers = words(name).filter((word) => /\d/.test(word)).map(bare).filter(Boolean);
    const found = products.filter(({ text }) => numbers.some((number) => text.includes(number)));
    return found.slice(0, 4).map((each) => each.name);
  }

  const processorNamed = (name) => facts.known.processors[name]
    || named(facts.known.processors, name, facts.known.cpuVendor);

  function otherVendor(name) {
    const plain = words(name.toLowerCase()).join(" ");
    return Object.keys(facts.known.others).find((vendor) =>
      facts.known.others[vendor].names.some((pattern) => new RegExp(`^(?:${pattern})$`).test(plain))) || "";
  }

  /* --- remarks: hardware/remarks.py --- */

  function gpuRemarks({ name, capability }) {
    const found = [];
    if (capability !== null && compareLists(parts(capability), facts.lastOfR580, false) < 0) {
      found.push(`${name}: 580 is the last driver branch for Maxwell, Pascal and Volta; update the driver no further`);
    }
    const vgpu = new RegExp(facts.vgpu).exec(name);
    if (vgpu) {
      const isDesktop = ["A", "B"].includes(vgpu.groups.series);
      found.push(`${name} is a vGPU: ${isDesktop ? "vGPUs of the A and B series are for desktops and have no CUDA"
        : "its driver belongs to the vGPU release of the host: update both together"}`);
    }
    if (new RegExp(facts.mig).test(name)) {
      found.push(`${name} is a MIG instance: it has the capability of the whole GPU, and a program uses one instance`);
    }
    return found;
  }

  function driverRemarks(driver, chosen) {
    const found = [];
    for (const cuda of unique(chosen.filter((it) => it.cuda).map((it) => it.cuda.version))) {
      const bundled = facts.known.bundled[cuda];
      const isSameBranch = driver === (bundled || "").split(".")[0];
      if (bundled && driver && !isSameBranch && compareNumbers(driver, bundled) < 0) {
        found.push(`driver ${driver} is older than the one of CUDA ${cuda} (${bundled}): it runs the build, `
          + "but code that is compiled at run time (torch.compile) may fail");
      }
    }
    return found;
  }

  function remarks(machine, chosen) {
    const found = machine.otherGpus.map((name) => {
      const vendor = otherVendor(name);
      return `${name}: ${vendor ? facts.known.others[vendor].says : "no recipe uses it"}`;
    });
    const kinds = new Map(machine.gpus.map((gpu) => [`${gpu.name}\0${gpu.capability}`, gpu]));
    for (const gpu of kinds.values()) found.push(...gpuRemarks(gpu));
    if (machine.isWsl) {
      found.push("WSL2: the driver is that of Windows; install no Linux driver in WSL. CUDA "
        + `${machine.cuda || "of its nvidia-smi"} decides, not the number of the driver`);
    } else if (!machine.gpus.some((gpu) => isTegra(gpu.capability))) {
      found.push(...driverRemarks(machine.driver || "", chosen));
    }
    for (const key of unique(chosen.map((it) => it.cpuKey))) {
      if (facts.known.differs[key]) found.push(`${key} differs ${facts.known.differs[key]}`);
    }
    if (machine.platform === "aarch64-linux" && machine.vendor === facts.apple) {
      found.push("Linux on an Apple CPU has no Metal; PyTorch on macOS itself uses the GPU (mps)");
    }
    if (machine.platform === "aarch64-darwin") {
      found.push("macOS: builds of kind mps use the GPU through Metal; nobody here has built one");
    }
    return found;
  }

  /* A machine is { platform, vendor, flags, gpus: [{ index, name, capability }], driver, cuda, isWsl,
     otherGpus }; what is unknown is null, or "" for flags. */
  function recommend(machine) {
    const result = resolve(machine);
    const best = bestOf(result);
    const wanted = ideal(machine);
    const chosen = [best, wanted].filter(Boolean).map((it) => it.variant);
    return { ...result, best, ideal: wanted, remarks: remarks(machine, chosen) };
  }

  return { recommend, whyBest, whyFallback, gpuNamed, gpuTyped, gpusLike, processorNamed, otherVendor, variants };
}
