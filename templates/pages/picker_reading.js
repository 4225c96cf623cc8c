/* What people type and paste, as the keys of the table of answers; and back, as the fields of the form.
   Fields are { gpu, cpu, driver }, each one line of text, which is also what the address carries.
   The names are those of build_pytorch/matrix/known_hardware.py. */
function makeReader(facts) {
  const longest = 200;
  const mostGpus = 64;
  const mostLines = 40000;
  const mostCsvLines = 500;
  const words = (text) => text.split(/\s+/).filter(Boolean);
  const unique = (items) => [...new Set(items)];
  const squashed = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
  const oneLine = (text) => words(text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ")).join(" ");
  const deciding = unique(facts.cpus.flatMap((cpu) => cpu.needs));
  const system = "[a-z0-9_]+-[a-z0-9]+";

  /* --- names of products --- */

  const whole = (pattern) => new RegExp(`^(?:${pattern})$`);
  const compiled = (table, patternsOf) => Object.entries(table).flatMap(([key, entry]) =>
    patternsOf(entry).map((pattern) => ({
      key,
      entry,
      pattern,
      named: new RegExp(`^(${pattern})(?:${facts.suffix})?$`),
      whole: whole(pattern),
      bare: whole(pattern.replaceAll(" ", "")),
    })));
  const gpuNames = compiled(facts.gpus, ({ names, armOnly }) => [...names, ...Object.keys(armOnly)]);
  const cpuNames = compiled(facts.processors, ({ names }) => names);
  const otherNames = compiled(facts.others, ({ names }) => names);
  const processors = new Map(Object.entries(facts.processors));
  const [gpuNumber, noGpu, capabilityTyped] = [facts.gpuNumber, facts.noGpu, facts.capability].map(whole);
  const plain = (name, vendor) => words(name.toLowerCase().replace(new RegExp(vendor, "gi"), " ")).join(" ");
  const bare = (name) => squashed(name).replace(new RegExp(facts.gpuFiller, "g"), "");
  const products = Object.values(facts.gpus).flatMap((gpu) =>
    gpu.products.map((product) => ({ text: bare(product), name: product, gpu })));

  /* The entry with the pattern that matches most of a name. */
  function named(table, text) {
    let best = null;
    for (const { key, entry, pattern, named: expression } of table) {
      const match = expression.exec(text);
      const isBetter = match && (!best || match[1].length > best.length
        || (match[1].length === best.length && key > best.key));
      if (isBetter) best = { key, entry, pattern, length: match[1].length };
    }
    return best;
  }
  const gpuNamed = (name) => named(gpuNames, plain(name, facts.gpuVendor))?.entry || null;

  /* { name, gpu } that a person means, such as "rtx4090" or "4090"; null if none. */
  function gpuTyped(name) {
    const known = gpuNamed(name);
    if (known) return { name, gpu: known };
    const wanted = bare(name);
    const same = products.find(({ text }) => text === wanted);
    if (same) return same;
    const like = gpuNames.find((each) => each.bare.test(wanted));
    if (like) return { name, gpu: like.entry };
    if (!gpuNumber.test(wanted)) return null;
    const ends = products.filter(({ text }) =>
      text.endsWith(wanted) && text !== wanted && !/\d$/.test(text.slice(0, -wanted.length)));
    return new Set(ends.map((each) => each.gpu)).size === 1 ? ends[0] : null;
  }

  /* The processor beside a GPU that exists in ARM machines only, "" if unknown; null for a card. */
  function armProcessor(name, gpu) {
    const [text, short] = [plain(name, facts.gpuVendor), bare(name)];
    const found = gpuNames.find((each) => each.entry === gpu && Object.hasOwn(gpu.armOnly, each.pattern)
      && (each.named.test(text) || each.bare.test(short)));
    if (found) return gpu.armOnly[found.pattern];
    return gpu.names.length ? null : Object.values(gpu.armOnly)[0];
  }

  /* Names of products that have a number of a name in them, to suggest. */
  function gpusLike(name) {
    const numbers = words(name).filter((word) => /\d/.test(word)).map(bare).filter(Boolean);
    const found = products.filter(({ text }) => numbers.some((number) => text.includes(number)));
    return found.slice(0, 4).map((each) => each.name);
  }

  const otherVendor = (name) => {
    const text = words(name.toLowerCase()).join(" ");
    return otherNames.find((each) => each.whole.test(text))?.entry || null;
  };

  /* --- GPUs --- */

  function readGpus(text) {
    const found = { gpus: [], otherGpus: [], problems: [] };
    for (const part of text.split(/[,;+\n]|\s(?:and|&)\s/).map(oneLine).filter(Boolean)) {
      const entry = part.replace(/^([^[\]]+?) [x×] ?(\d{1,2})$/, "$2x $1");
      const match = /^(?:gpu (\d{1,4}): ?)?(?:(\d{1,3}) ?[x×] )?(.*?)(?: \[(\?|\d{1,2}\.\d)\])?$/i.exec(entry);
      let [, index, count, name, capability = null] = match;
      if (noGpu.test(name.toLowerCase())) continue;
      const number = capabilityTyped.exec(name.toLowerCase());
      name = name.slice(0, longest);
      if (/^other: ./i.test(name)) {
        found.otherGpus.push(name.slice("other: ".length));
        continue;
      }
      let word = name;
      let gpu = null;
      if (capability === null && number) {
        capability = `${number[1] ?? number[3]}.${number[2] ?? number[4]}`;
        word = capability;
        name = `a GPU of capability ${capability}`;
      }
      if (capability === null) {
        const known = gpuTyped(name);
        if (known) {
          ({ name, gpu } = known);
          ({ capability } = gpu);
        } else if (otherVendor(name)) {
          found.otherGpus.push(name);
          continue;
        } else {
          const like = gpusLike(name);
          found.problems.push(`“${name}” is an unknown GPU. ${like.length ? `Did you mean ${like.join(" or ")}?`
            : "Give its compute capability, such as 8.9, or a name such as RTX 4090."}`);
          continue;
        }
      } else if (capability !== "?") {
        gpu = Object.values(facts.gpus).find((it) => it.capability === capability) || null;
        if (!gpu || gpuNamed(name) !== gpu) word = capability;
      }
      const arm = gpu ? armProcessor(name, gpu) : null;
      for (let copy = 0; copy < (count || 1) && found.gpus.length < mostGpus; copy += 1) {
        found.gpus.push({
          index: index === undefined ? found.gpus.length : Number(index) + copy, name, word, capability, arm,
        });
      }
    }
    return found;
  }

  /* --- CPU --- */

  /* The class of CPUs with these flags, and whether they fit it: a class has the lower ISAs, too. */
  function classOf(platform, flags) {
    const here = facts.cpus.filter((cpu) => cpu.platform === platform);
    const has = (flag) => flags.includes(flag);
    if (!flags.length && here.some((cpu) => cpu.needs.length)) return { cpu: null, isOdd: false };
    const cpu = here.find((each) => each.needs.every(has)) || facts.cpus.at(-1);
    return { cpu, isOdd: !cpu.flags.every(has) };
  }
  const classWithKey = (key) => facts.cpus.find((cpu) => cpu.key === key);

  const isFlagList = (list) => list.length > 2 && list.every((word) => /^[a-z0-9_.-]+$/i.test(word))
    && list.filter((word) => deciding.includes(word) || ["fpu", "sse2", "asimd", "fp"].includes(word)).length > 1;

  /* The generation of a CPU by its name, also of a short one such as "7950X" or "13th gen". */
  function processor(name) {
    if (processors.has(name)) return processors.get(name);
    const forms = [["^$", ""], ...facts.cpuForms].map(([pattern, form]) =>
      name.toLowerCase().replace(new RegExp(pattern, "g"), form));
    return forms.map((form) => named(cpuNames, plain(form, facts.cpuVendor))?.entry).find(Boolean) || null;
  }

  const ofProcessor = (found) => ({
    platform: found.platform, vendor: null, cpu: classWithKey(found.cpu), isOdd: false,
    says: `${found.title}: ${classWithKey(found.cpu).needs.length ? classWithKey(found.cpu).title : "no ISA of the table"}`,
  });

  /* Return { platform, vendor, cpu, isOdd, says } of what was typed for the CPU; null if it means nothing.
     `cpu` is a class, or null if only the platform is known. */
  function readCpu(text) {
    const typed = oneLine(text);
    const exact = new RegExp(`^(?:(${system}) )?(?:(implementer 0x[0-9a-f]{2}) )?(?:flags: (.*)|unknown)$`).exec(typed);
    if (exact) {
      const [, platform = "x86_64-linux", vendor = null, flags = ""] = exact;
      return { platform, vendor, ...classOf(platform, words(flags)), says: "" };
    }
    const list = words(typed.replace(/^(flags|features)\s*:/i, ""));
    if (isFlagList(list)) {
      const platform = list.includes("asimd") || list.includes("fp") ? "aarch64-linux" : "x86_64-linux";
      return { platform, vendor: null, ...classOf(platform, list), says: "" };
    }
    const isa = facts.cpus.find((cpu) => cpu.key !== "other" && !processors.has(cpu.key)
      && [cpu.key, cpu.title].some((each) => squashed(each) === squashed(typed)));
    if (isa) return { platform: isa.platform, vendor: null, cpu: isa, isOdd: false, says: isa.title };
    const known = [...processors.values()].find((it) => squashed(it.title) === squashed(typed))
      || processor(typed.slice(0, longest));
    return known ? ofProcessor(known) : null;
  }

  /* --- driver --- */

  function readDriver(text) {
    const typed = oneLine(text);
    const isWsl = /wsl/i.test(typed);
    const named = /cuda\s*(\d{1,2}\.\d{1,2})/i.exec(typed);
    let rest = typed.replace(named ? named[0] : "", "").replace(/wsl2?/i, "").replace(/driver|version|nvidia/gi, "").trim();
    let cuda = named ? named[1] : null;
    if (!cuda && whole(facts.cudaNumber).test(rest)) [cuda, rest] = [rest, ""];
    const number = /^v?(\d{1,4}(?:\.\d{1,4}){0,3})$/.exec(rest);
    const isUnknown = !rest || /^(none|unknown|\?|-)$/i.test(rest);
    return {
      driver: number ? number[1] : null,
      cuda,
      isWsl,
      problems: number || isUnknown ? [] : [`“${rest.slice(0, 40)}” is not a driver version such as 550 or 580.65.06.`],
    };
  }

  /* --- the machine --- */

  /* GPUs that share a package with an ARM CPU, named with another CPU or one of a higher ISA. */
  function strangers(gpus, { platform, cpu }) {
    const wrong = gpus.filter((gpu) => gpu.arm !== null && !platform.startsWith("aarch64-"));
    const isHigher = (own) => own.needs.length > 0 && facts.cpus.indexOf(cpu) < facts.cpus.indexOf(own);
    const above = gpus.filter((gpu) => gpu.arm && cpu && platform.startsWith("aarch64-")
      && isHigher(classWithKey(processors.get(gpu.arm).cpu)));
    if (above.length) return unique(above.map(({ name, arm }) =>
      `${name} is built together with a CPU that has ${processors.get(arm).cpu}, and the CPU has ${cpu.key}.`));
    return unique(wrong.map(({ name, arm }) => `${name} exists on aarch64-linux only, and the CPU is ${platform}. `
      + `Give the CPU of its machine${arm ? `, such as ${processors.get(arm).cpu}` : ""}.`));
  }

  const cpuUnknown = (text) => `“${oneLine(text).slice(0, 60)}” is an unknown CPU. Give its model such as `
    + "Ryzen 9 7950X or i7-8700, a generation such as Zen 4, an ISA such as AVX2, or its flags.";

  /* The machine that the fields describe as keys of the table, and what is wrong with them. `cpu` is null
     if the CPU is needed, `isOdd` true if its flags are those of no class. */
  function machineOf(fields) {
    const { gpus, otherGpus, problems } = readGpus(fields.gpu);
    const { problems: wrongDriver, ...driver } = readDriver(fields.driver);
    const isTyped = fields.cpu.trim() !== "";
    const typed = isTyped ? readCpu(fields.cpu) : null;
    const beside = gpus.map((gpu) => gpu.arm).find((arm) => arm !== null);
    const assumed = !isTyped && beside ? ofProcessor(processors.get(beside)) : null;
    const platform = beside === undefined ? "x86_64-linux" : "aarch64-linux";
    const read = typed || assumed || { platform, vendor: null, cpu: null, isOdd: false, says: "" };
    const kinds = unique(gpus.map((gpu) => gpu.capability));
    const [first = null] = gpus;
    return {
      machine: {
        ...driver,
        ...read,
        cpu: read.cpu && read.cpu.key,
        kind: first ? first.capability : otherGpus.length ? "other" : "none",
        gpu: first ? first.name : "",
        isConsumer: Boolean(first) && facts.consumer.some((word) => first.name.toLowerCase().includes(word)),
        gpus,
        otherGpus,
        kinds,
      },
      problems: {
        gpu: [...problems, ...strangers(gpus, read)],
        cpu: isTyped && !typed ? [cpuUnknown(fields.cpu)] : [],
        driver: wrongDriver,
      },
    };
  }

  const otherSays = (name) => `${name}: ${otherVendor(name)?.says || "no recipe uses it"}`;

  /* What is said about names that people have given: it depends on no answer. */
  function remarksOn({ gpus, platform, vendor }) {
    const names = unique(gpus.map((gpu) => gpu.name));
    const byName = Object.entries(facts.nameRemarks).map(([pattern, text]) => [new RegExp(pattern), text]);
    return [
      ...names.flatMap((name) => byName.filter(([it]) => it.test(name)).map(([, text]) => `${name} ${text}`)),
      ...(platform === "aarch64-linux" && Object.hasOwn(facts.vendorRemarks, vendor ?? "") ? [facts.vendorRemarks[vendor]] : []),
    ];
  }

  /* The command that answers for such a machine; without options where they cannot say all of it. */
  function commandFor({ gpus, cpu, isOdd, driver, cuda, isWsl }) {
    const quoted = (word) => (/^[\w.+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
    const isSayable = cpu && cpu !== "other" && !isOdd && !isWsl && gpus.every((gpu) => gpu.capability !== "?");
    if (!isSayable) return "invoke recommend";
    const options = [...unique(gpus.map((gpu) => gpu.word)).map((word) => ["--gpu", quoted(word)]), ["--cpu", cpu]];
    if (driver || cuda) options.push(["--driver", driver || cuda]);
    return ["invoke recommend", ...options.flat()].join(" ");
  }

  /* --- the other way: a machine as fields --- */

  function gpuField(gpus, otherGpus) {
    const isCounted = gpus.every((gpu, number) => gpu.index === number);
    const tidy = (name) => oneLine(name.replace(/[,;+&[\]]|\sand\s/g, " ")).slice(0, longest);
    const entries = [];
    for (const gpu of gpus) {
      const known = gpuNamed(tidy(gpu.name));
      const isKnown = known && known.capability === gpu.capability;
      const text = tidy(gpu.name) + (isKnown ? "" : ` [${gpu.capability ?? "?"}]`);
      const last = entries.at(-1);
      if (isCounted && last && last.text === text) last.count += 1;
      else entries.push({ text: isCounted ? text : `GPU ${gpu.index}: ${text}`, count: 1 });
    }
    const others = otherGpus.map((name) => (otherVendor(name) ? tidy(name) : `other: ${tidy(name)}`));
    const all = [...entries.map(({ text, count }) => (count > 1 ? `${count}x ${text}` : text)), ...others];
    return all.join(", ") || "none";
  }

  function cpuField({ platform, vendor, flags, model }) {
    const there = words(flags);
    const { cpu, isOdd } = classOf(platform, there);
    if (!cpu) return `${platform} unknown`;
    const isPlain = !isOdd && cpu.key !== "other" && !Object.hasOwn(facts.vendorRemarks, vendor ?? "");
    const typed = isPlain && model ? readCpu(model) : null;
    if (typed && typed.cpu === cpu && !typed.isOdd) return oneLine(model).slice(0, longest);
    if (isPlain) return cpu.key;
    const decisive = deciding.filter((flag) => there.includes(flag));
    const who = [platform === "x86_64-linux" ? "" : platform, isPlain ? "" : vendor].filter(Boolean);
    return [...who, "flags:", ...(decisive.length ? decisive : there.slice(0, 1))].join(" ");
  }

  const driverField = ({ driver, cuda, isWsl }) =>
    [driver, cuda && `CUDA ${cuda}`, isWsl && "WSL2"].filter(Boolean).join(" ");

  /* --- what people paste --- */

  const textOr = (value, pattern) => (typeof value === "string" && pattern.test(value) ? value : null);
  const anyText = /^[^]{1,300}$/;
  const capabilityText = /^\d{1,2}\.\d$/;

  /* The fields of a description by `invoke describe-machine`; null if it is none. */
  function fromDescription(text) {
    let raw;
    try {
      raw = JSON.parse(text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1));
    } catch {
      return null;
    }
    if (raw && raw.machine) raw = raw.machine;
    if (!raw || typeof raw.format !== "string" || !raw.format.startsWith("build-pytorch machine ")) return null;
    const cpu = raw.cpu && typeof raw.cpu === "object" ? raw.cpu : {};
    const list = (value) => (Array.isArray(value) ? value.slice(0, mostGpus) : []);
    const gpus = list(raw.gpus).filter((gpu) => gpu && textOr(gpu.name, anyText)).map((gpu, number) => ({
      index: Number.isInteger(gpu.index) && gpu.index >= 0 && gpu.index < 1024 ? gpu.index : number,
      name: gpu.name,
      capability: textOr(gpu.capability, capabilityText),
    }));
    return {
      gpu: gpuField(gpus, list(raw.other_gpus).filter((name) => textOr(name, anyText))),
      cpu: cpuField({
        platform: textOr(raw.platform, whole(system)) || "x86_64-linux",
        vendor: textOr(cpu.vendor, /^implementer 0x[0-9a-f]{2}$/),
        model: textOr(cpu.model, anyText),
        flags: textOr(cpu.flags, /^[a-z0-9_. -]{1,20000}$/) || "",
      }),
      driver: driverField({
        driver: textOr(raw.driver, /^\d{1,4}(\.\d{1,4}){0,3}$/),
        cuda: textOr(raw.cuda, /^\d{1,2}\.\d{1,2}$/),
        isWsl: raw.is_wsl === true,
      }),
    };
  }

  /* GPUs of `nvidia-smi -L`: a MIG instance has its own line below its GPU. */
  function listed(lines) {
    const found = [];
    for (const line of lines) {
      const gpu = /^\s*GPU (\d{1,4}): (.+?)(?: \(UUID: .*)?$/.exec(line);
      const mig = /^\s+MIG (\S+)\s+Device\s+\d+:/.exec(line);
      if (gpu) found.push({ index: Number(gpu[1]), name: gpu[2], capability: undefined });
      else if (mig && found.length && !/ MIG /.test(found.at(-1).name)) found.at(-1).name += ` MIG ${mig[1]}`;
    }
    return found;
  }

  /* GPUs of the table of `nvidia-smi`: number, name, and the persistence mode or the driver model. */
  function tabled(lines) {
    const row = /^\s*[|│]\s+(\d{1,4})\s+(\S.*?)\s+(?:On|Off|N\/A|WDDM|TCC|MCDM)\s*[|│]/;
    return lines.map((line) => row.exec(line)).filter((it) => it && !/^(N\/A|\d+)\s/.test(it[2])).map((it) =>
      ({ index: Number(it[1]), name: it[2].replace(/\.\.\.$/, "").trim(), capability: undefined }));
  }

  /* GPUs and drivers of `nvidia-smi --query-gpu=... --format=csv`, with its head or without. */
  function queried(lines) {
    const found = { gpus: [], driver: null };
    let columns = null;
    for (const line of lines) {
      const cells = line.split(",").map((cell) => cell.trim());
      if (cells.some((cell) => /^(name|gpu_name|driver_version|compute_cap|index)$/.test(cell))) {
        columns = cells.map((cell) => cell.replace(/ \[.*/, ""));
        continue;
      }
      const at = (...names) => (columns ? cells[columns.findIndex((it) => names.includes(it))] : undefined);
      if (!columns && cells.length > 12) continue;
      const name = at("name", "gpu_name") ?? cells.find((cell) => cell.length > 1 && gpuNamed(cell));
      if (!name) continue;
      const driver = at("driver_version") ?? cells.find((cell) => /^\d{3}\.\d{1,3}(\.\d{1,3})?$/.test(cell));
      const capability = at("compute_cap") ?? cells.find((cell) => capabilityText.test(cell));
      const index = at("index") ?? (/^\d{1,2}$/.test(cells[0]) ? cells[0] : undefined);
      found.gpus.push({
        index: index && /^\d{1,4}$/.test(index) ? Number(index) : found.gpus.length,
        name,
        capability: textOr(capability, capabilityText) ?? undefined,
      });
      found.driver = textOr(driver, /^\d{3,4}\.\d{1,3}(\.\d{1,3})?$/) || found.driver;
    }
    return found;
  }

  /* GPUs of `lspci`: the last name in brackets of a display controller, the first of several. */
  function fromPci(lines) {
    const row = /(?:VGA compatible|3D|Display) controller(?: \[\w+\])?: (NVIDIA|Advanced Micro|Intel)[^[]*(.*)$/;
    const found = lines.map((line) => row.exec(line.slice(0, 400))).filter(Boolean).map(([, vendor, rest]) => {
      const names = [...rest.matchAll(/\[([^\]]+)\]/g)].map((it) => it[1]).filter((it) => !/^([\da-f]{4}:[\da-f]{4}|AMD\/ATI)$/.test(it));
      return { vendor, name: (names.at(-1) || "").split("/")[0].trim() };
    });
    const gpus = found.filter(({ vendor, name }) => vendor === "NVIDIA" && name).map(({ name }, index) =>
      ({ index, name, capability: gpuNamed(name)?.capability ?? null }));
    const others = found.filter(({ vendor }) => vendor !== "NVIDIA").map(({ vendor, name }) =>
      `${vendor === "Intel" ? "Intel" : "AMD"} ${name || "GPU"}`);
    return gpus.length || others.length ? { gpu: gpuField(gpus, gpus.length ? [] : others) } : {};
  }

  function fromSmi(text, lines, values) {
    const short = lines.map((line) => line.slice(0, 400));
    const version = (pattern) => (pattern.exec(text) || [])[1] || null;
    let driver = version(/(?:Driver|KMD) Version\s*:\s*(\d{3,4}(?:\.\d{1,4}){1,3})/i);
    const cuda = version(/CUDA (?:UMD )?Version\s*:\s*(\d{1,2}\.\d{1,2})/i);
    const client = version(/NVIDIA-SMI (\d{3,4}(?:\.\d{1,4}){1,3})/);
    const isWsl = short.some((line) => /^\s*[|│].*\b(?:WDDM|MCDM)\b/.test(line)) || /microsoft|wsl2/i.test(text)
      || Boolean(client && driver && client !== driver);
    let gpus = listed(short);
    if (!gpus.length) gpus = tabled(short);
    if (!gpus.length) {
      gpus = values("Product Name").map((name, index) => ({ index, name, capability: undefined }));
    }
    if (!gpus.length && !values("flags", "Features", "Flags").length) {
      const answer = queried(short.slice(0, mostCsvLines));
      gpus = answer.gpus;
      driver ||= answer.driver;
    }
    if (!gpus.length && !driver && !cuda) return null;
    const read = gpus.map((gpu) => ({ ...gpu, capability: gpu.capability ?? gpuNamed(gpu.name)?.capability ?? null }));
    const fields = { driver: driverField({ driver, cuda, isWsl }) };
    if (read.length) fields.gpu = gpuField(read, []);
    return fields;
  }

  /* The CPU of /proc/cpuinfo or lscpu: flags that every processor has. */
  function fromCpuinfo(values) {
    const lists = values("flags", "Features", "Flags").map(words);
    const [model] = values("model name", "Model name", "Hardware");
    if (!lists.length) return model && readCpu(model) ? { cpu: oneLine(model).slice(0, longest) } : null;
    const others = lists.slice(1).map((list) => new Set(list));
    const flags = lists[0].filter((flag) => others.every((it) => it.has(flag)));
    const isArm = values("Features").length > 0 || flags.includes("asimd");
    const implementer = values("CPU implementer").find((value) => /^0x[0-9a-f]{2}$/.test(value));
    return { cpu: cpuField({
      platform: isArm ? "aarch64-linux" : "x86_64-linux",
      vendor: implementer ? `implementer ${implementer}` : null,
      flags: flags.join(" "),
      model,
    }) };
  }

  /* The fields that a pasted text sets; null if nothing in it is recognised. Each expression sees one line, so
     that the time grows with the text and not with its square. */
  function paste(text) {
    const clean = text.slice(0, 4000000).replace(/\r\n?/g, "\n");
    const described = clean.includes("{") ? fromDescription(clean) : null;
    if (described) return described;
    const lines = clean.split("\n").filter((line) => line.trim()).slice(0, mostLines);
    const pairs = lines.map((line) => {
      const colon = line.indexOf(":");
      return colon < 0 ? ["", ""] : [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
    });
    const values = (...keys) => pairs.filter(([key, value]) => value && keys.includes(key)).map(([, value]) => value);
    const cpu = fromCpuinfo(values);
    const found = { ...fromPci(lines), ...fromSmi(lines.join("\n"), lines, values), ...cpu };
    if (/NVIDIA-SMI has failed/i.test(clean)) found.driver = "none";
    const list = cpu ? [] : words(lines.join(" "));
    if (isFlagList(list)) {
      const platform = list.includes("asimd") || list.includes("fp") ? "aarch64-linux" : "x86_64-linux";
      found.cpu = cpuField({ platform, vendor: null, flags: list.join(" ") });
    }
    return Object.keys(found).length ? found : null;
  }

  return { machineOf, otherSays, remarksOn, commandFor, classWithKey, gpuTyped, paste };
}
