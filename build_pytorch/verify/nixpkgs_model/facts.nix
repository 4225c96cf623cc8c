# The facts of a package, read from the derivation where possible: passthru shows what was requested,
# attributes and inputs show what is built. A fact that the package does not have is null.
item: drv:
let
  inherit (builtins) attrNames attrValues concatMap elem filter head isAttrs isFunction isList listToAttrs mapAttrs match substring;

  isDerivation = value: isAttrs value && value.type or null == "derivation";
  listOf = value: if isList value then value else filter (x: x != null) [ value ];
  unique = builtins.foldl' (seen: x: if elem x seen then seen else seen ++ [ x ]) [ ];
  toSet = names: f: listToAttrs (map (name: { inherit name; value = f name; }) names);
  # The attributes of a set by their names; null for one that is missing.
  pick = names: set: toSet names (name: set.${name} or null);
  # A torch under any name.
  isTorch = value: isDerivation value && value ? cudaCapabilities && value ? cudaSupport;
  # The CUDA packages that may be from elsewhere, with names of their own.
  foreign = [ "cudatoolkit" "cudnn" "nccl" "libcusparse_lt" ];

  # A value without the contents of packages, which overlays may change: of a package, its name with
  # the CUDA that it belongs to.
  plain =
    value:
    let
      cuda = match "(cuda[0-9.]+-).*" value.name;
      name = value.pname or value.name;
    in
    if isTorch value then "torch"
    else if isDerivation value then (if cuda == null || elem name foreign then name else head cuda + name)
    else if isAttrs value then mapAttrs (_: plain) value
    else if isList value then map plain value
    else if isFunction value then "a function"
    else if builtins.isPath value then toString value
    else value;

  inputs = filter isDerivation (
    concatMap listOf (attrValues (removeAttrs drv.drvAttrs [ "src" "patches" ]))
  );
  ofInputs = value: listToAttrs (map (it: { name = plain it; value = value it; }) (filter (it: !isTorch it) inputs));
  # The first input of a name; an empty set if there is none.
  named = pname: head (filter (input: input.pname or "" == pname) inputs ++ [ { } ]);
  cudaOf = pkg: (pkg.cudaPackages or { }).cudaMajorMinorVersion or null;
  magma = named "magma";
  # Flags for nvcc that a recipe adds to a library.
  nvccFlagsOf = pkg: (pkg.env or { }).NVCC_APPEND_FLAGS or (pkg.NVCC_APPEND_FLAGS or null);

  # The model keeps url and hash as given; real fetchers keep only derived values.
  patchOf = patch: toString [
    (patch.name or (baseNameOf patch))
    (patch.url or (head (patch.urls or [ null ])))
    (patch.hash or (patch.outputHash or null))
    # fetchpatch removes what a server may change; without that, the hash is of another text.
    (if patch.postFetch or "" == "" then "raw" else if patch ? model then patch.postFetch else "normalised")
  ];

  isCuda = drv.cudaSupport or false;
  cuda = if isCuda then drv.cudaPackages or { } else { };
  pathOf = output: name: if cuda ? ${name} then "${cuda.${name}.${output} or cuda.${name}}" else null;

  # Whether torch is broken if nixpkgs has a reason that no recipe knows.
  brokenForOther =
    let
      nixpkgs = item.given.nixpkgs_pinned;
      sets = filter (name: match "python3[0-9]*Packages" name != null) (attrNames nixpkgs);
      reasons = old: old // { brokenConditions = old.brokenConditions // { "another reason" = true; }; };
      withReason = torch: torch.overrideAttrs (old: { passthru = reasons old.passthru; });
      changed = toSet sets (name: nixpkgs.${name} // { torch = withReason nixpkgs.${name}.torch; });
    in
    if item.given or { } == { } || !(isTorch drv && isCuda) then null
    else (item.function { nixpkgs_pinned = nixpkgs // changed; }).meta.broken or null;
in
if item ? is_set then
  # Those of release.nix: its packages, and the names of those that a machine can run. The pinned
  # nixpkgs takes minutes for derivations: those of recipes have to do there.
  {
    packages = mapAttrs (_: it: { inherit (it) name system; drvPath = if it ? model then it.drvPath else null; }) (drv { });
    possible = attrNames (drv { impossibleHosts = false; });
  }
else
  {
    inherit (drv) drvPath;
    inherit brokenForOther;
    attr = mapAttrs (_: plain) drv.drvAttrs;
    input = ofInputs (it: it.version or "");
    # The model's packages are real derivations: they show what an overlay changes in an input.
    builds = if drv ? model then ofInputs (it: substring 0 32 (baseNameOf it.drvPath)) else null;
    cudaSupport = drv.cudaSupport or null;
    triton.cudaSupport = (named "triton").cudaSupport or null;
    cudaVersion = if isCuda then cudaOf drv else null;
    magma = pick [ "static" "cmakeFlags" ] magma // {
      cuda = cudaOf magma;
      patches = map patchOf (listOf (magma.patches or null));
      buildInputs = map plain (listOf (magma.buildInputs or null));
      nvccFlags = nvccFlagsOf magma;
    };
    nccl = pick [ "makeFlags" ] (named "nccl") // { nvccFlags = nvccFlagsOf (named "nccl"); };
    # The files of the CUDA packages that do not come from nixpkgs, and paths of others.
    cudaPackages = mapAttrs (_: package: package.calledFile or null) (pick foreign cuda);
    path.cccl = pathOf "out" "cuda_cccl";
    path.cuptiLib = pathOf "lib" "cuda_cupti";
    path.cuptiDev = pathOf "dev" "cuda_cupti";
    # The torch that a companion is compiled and installed with.
    torch = if isTorch drv then null else {
      derivations = unique (map (input: input.drvPath) (filter isTorch inputs));
      installed = unique (map (input: input.outputName) (filter isTorch (listOf (drv.propagatedBuildInputs or null))));
      ofSet = drv.setTorch or null;
    };
    src = pick [ "owner" "repo" "rev" "fetchSubmodules" ] (drv.src or { })
      // { hash = drv.src.hash or (drv.src.outputHash or null); };
    passthru = plain (pick [ "gpuArch" "cpuISA" "blasProvider" "cudaCapabilities" ] (drv.passthru or { }))
      // { tests = attrNames (drv.passthru.tests or { }); };
    meta = pick [ "description" "longDescription" "platforms" "broken" ] (drv.meta or { })
      // { license = drv.meta.license.shortName or null; };
    # The nixpkgs of the package, as the recipe names it; only the model records it.
    nixpkgs = drv.model.source or null;
  }
