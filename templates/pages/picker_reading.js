/* What people type and paste, as the machine that the rules take; and back, as the fields of the form.
   Fields are { gpu, cpu, driver }, each one line of text, which is also what the address carries. */
function makeReader(facts, rules) {
  const longest = 200;
  const mostGpus = 64;
  const words = (text) => text.split(/\s+/).filter(Boolean);
  const unique = (items) => [...new Set(items)];
  const squashed = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
  const oneLine = (text) => words(text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ")).join(" ");
  const deciding = unique(Object.values(facts.cpus).flatMap((cpu) => cpu.flags));
  const system = "[a-z0-9_]+-[a-z0-9]+";

  /* --- GPUs --- */

  function readGpus(text) {
    const found = { gpus: [], otherGpus: [], problems: [] };
    for (const part of text.split(/[,;+\n]|\s(?:and|&)\s/).map(oneLine).filter(Boolean)) {
      const entry = part.replace(/^([^[\]]+?) [x×] ?(\d{1,2})$/, "$2x $1");
      const match = /^(?:gpu (\d{1,4}): ?)?(?:(\d{1,3}) ?[x×] )?(.*?)(?: \[(\?|\d{1,2}\.\d)\])?$/i.exec(entry);
      let [, index, count, name, capability = null] = match;
      if (/^(none|no|no gpu|without|cpu|cpu-only|igpu|integrated|-)$/i.test(name)) continue;
      const bare = /^(?:compute |capability |sm_?)?(\d{1,2})\.?(\d)$/i.exec(name);
      name = name.slice(0, longest);
      if (/^other: ./i.test(name)) {
        found.otherGpus.push(name.slice("other: ".length));
        continue;
      }
      if (capability === null && bare && (name.includes(".") || /sm/i.test(name))) {
        capability = `${bare[1]}.${bare[2]}`;
        name = `a GPU of capability ${capability}`;
      }
      if (capability === null) {
        const known = rules.gpuTyped(name);
        if (known) ({ name, capability } = known);
        else if (rules.otherVendor(name)) {
          found.otherGpus.push(name);
          continue;
        } else {
          const like = rules.gpusLike(name);
          found.problems.push(`“${name}” is an unknown GPU. ${like.length ? `Did you mean ${like.join(" or ")}?`
            : "Give its compute capability, such as 8.9, or a name such as RTX 4090."}`);
          continue;
        }
      }
      for (let number = 0; number < (count || 1) && found.gpus.length < mostGpus; number += 1) {
        found.gpus.push({
          index: index === undefined ? found.gpus.length : Number(index) + number,
          name,
          capability: capability === "?" ? null : capability,
        });
      }
    }
    return found;
  }

  /* --- CPU --- */

  function flagsOf(isa) {
    const { platform, level } = facts.cpus[isa];
    const lower = Object.values(facts.cpus).filter((it) => it.platform === platform && it.level <= level);
    return unique(lower.flatMap((it) => it.flags)).join(" ");
  }

  const isFlagList = (list) => list.length > 2 && list.every((word) => /^[a-z0-9_.-]+$/i.test(word))
    && list.filter((word) => deciding.includes(word) || ["fpu", "sse2", "asimd", "fp"].includes(word)).length > 1;

  /* The generation of a CPU by its name, also of a short one such as "7950X" or "13th gen". */
  function processor(name) {
    const generation = /\b(\d{1,2})th gen/i.exec(name);
    const forms = [name, name.replace(/\b(i[3579]) (?=\d)/i, "$1-")];
    if (/^\d{4}(x|x3d|xt)$/i.test(name)) forms.push(`Ryzen ${name}`);
    if (/^(\d{4}k[fs]?|\d{5}[a-z]*)$/i.test(name)) forms.push(`i7-${name}`);
    if (generation) forms.push(`i7-${generation[1]}700`);
    return forms.map(rules.processorNamed).find(Boolean) || null;
  }

  /* Return { platform, vendor, flags, says } of what was typed for the CPU; null if it means nothing. */
  function readCpu(text) {
    const typed = oneLine(text);
    const exact = new RegExp(`^(?:(${system}) )?(?:(implementer 0x[0-9a-f]{2}) )?(?:flags: (.*)|unknown)$`).exec(typed);
    if (exact) {
      const [, platform = "x86_64-linux", vendor = null, flags = ""] = exact;
      return { platform, vendor, flags, says: "" };
    }
    const list = words(typed.replace(/^(flags|features)\s*:/i, ""));
    if (isFlagList(list)) {
      const isArm = list.includes("asimd") || list.includes("fp");
      return { platform: isArm ? "aarch64-linux" : "x86_64-linux", vendor: null, flags: list.join(" "), says: "" };
    }
    const isa = Object.keys(facts.cpus).find((key) => squashed(key) === squashed(typed)
      || squashed(facts.cpus[key].title) === squashed(typed));
    if (isa) return { platform: facts.cpus[isa].platform, vendor: null, flags: flagsOf(isa), says: facts.cpus[isa].title };
    const known = Object.values(facts.known.processors).find((it) => squashed(it.title) === squashed(typed))
      || processor(typed.slice(0, longest));
    if (!known) return null;
    const flags = known.isa ? flagsOf(known.isa) : known.flags;
    const says = `${known.title}: ${known.isa ? facts.cpus[known.isa].title : "no ISA of the table"}`;
    return { platform: known.platform, vendor: null, flags, says };
  }

  /* --- driver --- */

  function readDriver(text) {
    const typed = oneLine(text);
    const cuda = /cuda\s*(\d{1,2}\.\d{1,2})/i.exec(typed);
    const isWsl = /wsl/i.test(typed);
    const rest = typed.replace(cuda ? cuda[0] : "", "").replace(/wsl2?/i, "").replace(/driver|version|nvidia/gi, "").trim();
    const number = /^v?(\d{1,4}(?:\.\d{1,4}){0,3})$/.exec(rest);
    const isUnknown = !rest || /^(none|unknown|\?|-)$/i.test(rest);
    return {
      driver: number ? number[1] : null,
      cuda: cuda ? cuda[1] : null,
      isWsl,
      problems: number || isUnknown ? [] : [`“${rest.slice(0, 40)}” is not a driver version such as 550 or 580.65.06.`],
    };
  }

  /* The machine that the fields describe, and what is wrong with them. Without a CPU, `isPartial`. */
  function machineOf(fields) {
    const { gpus, otherGpus, problems } = readGpus(fields.gpu);
    const { driver, cuda, isWsl, problems: wrongDriver } = readDriver(fields.driver);
    const cpu = fields.cpu.trim() ? readCpu(fields.cpu) : null;
    const hosts = gpus.map(({ capability }) =>
      Object.values(facts.gpus).find((it) => it.capabilities[0] === capability)).filter(Boolean);
    const platform = cpu ? cpu.platform
      : hosts.some((it) => !("x86_64-linux" in it.hosts)) ? "aarch64-linux" : "x86_64-linux";
    const machine = {
      platform, vendor: cpu ? cpu.vendor : null, flags: cpu ? cpu.flags : "",
      gpus, otherGpus, driver, cuda, isWsl,
    };
    const wrong = { gpu: problems, cpu: [], driver: wrongDriver };
    if (fields.cpu.trim() && !cpu) {
      wrong.cpu.push(`“${oneLine(fields.cpu).slice(0, 60)}” is an unknown CPU. Give its model such as `
        + "Ryzen 9 7950X or i7-8700, a generation such as Zen 4, an ISA such as AVX2, or its flags.");
    }
    return { machine, isPartial: !cpu, problems: wrong, says: cpu ? cpu.says : "" };
  }

  /* --- the other way: a machine as fields --- */

  function gpuField(gpus, otherGpus) {
    const isCounted = gpus.every((gpu, number) => gpu.index === number);
    const plain = (name) => oneLine(name.replace(/[,;+&[\]]|\sand\s/g, " ")).slice(0, longest);
    const entries = [];
    for (const gpu of gpus) {
      const known = rules.gpuNamed(plain(gpu.name));
      const isKnown = known && known.capability === gpu.capability;
      const text = plain(gpu.name) + (isKnown ? "" : ` [${gpu.capability ?? "?"}]`);
      const last = entries.at(-1);
      if (isCounted && last && last.text === text) last.count += 1;
      else entries.push({ text: isCounted ? text : `GPU ${gpu.index}: ${text}`, count: 1 });
    }
    const others = otherGpus.map((name) => (rules.otherVendor(name) ? plain(name) : `other: ${plain(name)}`));
    const all = [...entries.map(({ text, count }) => (count > 1 ? `${count}x ${text}` : text)), ...others];
    return all.join(", ") || "none";
  }

  function cpuField({ platform, vendor, flags, model }) {
    const there = words(flags);
    if (!there.length) return `${platform} unknown`;
    const decisive = deciding.filter((flag) => there.includes(flag));
    const isSame = (other) => other && other.platform === platform && vendor !== facts.apple
      && deciding.every((flag) => decisive.includes(flag) === words(other.flags).includes(flag));
    if (model && isSame(readCpu(model))) return oneLine(model).slice(0, longest);
    const isa = Object.keys(facts.cpus).find((key) => isSame(readCpu(key)));
    if (isa) return isa;
    const who = [platform === "x86_64-linux" ? "" : platform, vendor === facts.apple ? vendor : ""].filter(Boolean);
    return [...who, "flags:", ...(decisive.length ? decisive : [there[0]])].join(" ");
  }

  const driverField = ({ driver, cuda, isWsl }) =>
    [driver, cuda && `CUDA ${cuda}`, isWsl && "WSL2"].filter(Boolean).join(" ");

  const fieldsOf = (machine) => ({
    gpu: gpuField(machine.gpus, machine.otherGpus),
    cpu: cpuField(machine),
    driver: driverField(machine),
  });

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
    return fieldsOf({
      platform: textOr(raw.platform, new RegExp(`^${system}$`)) || "x86_64-linux",
      vendor: textOr(cpu.vendor, anyText),
      model: textOr(cpu.model, anyText),
      flags: textOr(cpu.flags, /^[a-z0-9_. -]{1,20000}$/) || "",
      gpus: list(raw.gpus).filter((gpu) => gpu && textOr(gpu.name, anyText)).map((gpu, number) => ({
        index: Number.isInteger(gpu.index) && gpu.index >= 0 && gpu.index < 1024 ? gpu.index : number,
        name: gpu.name,
        capability: textOr(gpu.capability, capabilityText),
      })),
      otherGpus: list(raw.other_gpus).filter((name) => textOr(name, anyText)),
      driver: textOr(raw.driver, /^\d{1,4}(\.\d{1,4}){0,3}$/),
      cuda: textOr(raw.cuda, /^\d{1,2}\.\d{1,2}$/),
      isWsl: raw.is_wsl === true,
    });
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
      const name = at("name", "gpu_name") ?? cells.find((cell) => cell.length > 1 && rules.gpuNamed(cell));
      if (!name || (!columns && cells.length > 12)) continue;
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

  function fromSmi(text, lines) {
    const version = (pattern) => (pattern.exec(text) || [])[1] || null;
    let driver = version(/(?:Driver|KMD) Version\s*:\s*(\d{3,4}(?:\.\d{1,4}){1,3})/i);
    const cuda = version(/CUDA (?:UMD )?Version\s*:\s*(\d{1,2}\.\d{1,2})/i);
    const client = version(/NVIDIA-SMI (\d{3,4}(?:\.\d{1,4}){1,3})/);
    const isWsl = /[|│].*\b(WDDM|MCDM)\b.*[|│]|microsoft|wsl2/i.test(text)
      || Boolean(client && driver && client !== driver);
    let gpus = listed(lines);
    if (!gpus.length) gpus = tabled(lines);
    if (!gpus.length) {
      const names = [...text.matchAll(/^\s*Product Name\s*:\s*(.+?)\s*$/gm)];
      gpus = names.map((it, index) => ({ index, name: it[1], capability: undefined }));
    }
    if (!gpus.length && !/^\s*(flags|Features|Flags)\s*:/m.test(text)) {
      const answer = queried(lines);
      gpus = answer.gpus;
      driver ||= answer.driver;
    }
    if (!gpus.length && !driver && !cuda) return null;
    const read = gpus.map((gpu) => {
      const known = rules.gpuNamed(gpu.name);
      return { ...gpu, capability: gpu.capability ?? (known ? known.capability : null) };
    });
    const fields = { driver: driverField({ driver, cuda, isWsl }) };
    if (read.length) fields.gpu = gpuField(read, []);
    return fields;
  }

  /* The CPU of /proc/cpuinfo or lscpu: flags that every processor has. */
  function fromCpuinfo(text) {
    const lists = [...text.matchAll(/^\s*(flags|Features|Flags)\s*:\s*(.+)$/gm)];
    const model = (/^\s*(?:model name|Model name|Hardware)\s*:\s*(.+?)\s*$/m.exec(text) || [])[1];
    if (!lists.length) return model && readCpu(model) ? { cpu: oneLine(model).slice(0, longest) } : null;
    const first = words(lists[0][2]);
    const others = lists.slice(1).map((it) => new Set(words(it[2])));
    const flags = first.filter((flag) => others.every((it) => it.has(flag))).join(" ");
    const isArm = lists[0][1] === "Features" || /\basimd\b/.test(flags);
    const implementer = (/^\s*CPU implementer\s*:\s*(0x[0-9a-f]{2})\s*$/m.exec(text) || [])[1];
    const vendor = implementer ? `implementer ${implementer}` : null;
    return { cpu: cpuField({ platform: isArm ? "aarch64-linux" : "x86_64-linux", vendor, flags, model }) };
  }

  /* The fields that a pasted text sets; null if nothing in it is recognised. */
  function paste(text) {
    const clean = text.slice(0, 4000000).replace(/\r\n?/g, "\n");
    const described = clean.includes("{") ? fromDescription(clean) : null;
    if (described) return described;
    const lines = clean.split("\n").slice(0, 20000);
    const cpu = fromCpuinfo(clean);
    const found = { ...fromSmi(clean, lines), ...cpu };
    if (!cpu && /^\s*[a-z0-9_. \n-]+$/.test(clean) && isFlagList(words(clean))) {
      const { platform, flags } = readCpu(words(clean).join(" "));
      found.cpu = cpuField({ platform, vendor: null, flags });
    }
    return Object.keys(found).length ? found : null;
  }

  return { machineOf, fieldsOf, paste };
}
