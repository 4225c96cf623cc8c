# The facts of one evaluated recipe, read from the derivation where possible: passthru shows what
# was requested, inputs and phases show what is built. Facts are lazy: one that cannot be evaluated
# does not affect the others. A fact that the package does not have is null.
#
# `pin` is the package that the pinned nixpkgs makes from the same arguments, or null.
{ isDerivation, plain }:
pin: drv:
let
  inherit (builtins)
    concatMap
    filter
    isList
    isString
    ;

  listOf = value: if isList value then value else if value == null then [ ] else [ value ];

  inputs = filter isDerivation (
    concatMap listOf [
      (drv.buildInputs or [ ])
      (drv.nativeBuildInputs or [ ])
      (drv.propagatedBuildInputs or [ ])
    ]
  );
  inputNamed = pname: filter (input: input.pname or "" == pname);
  # A torch, under any name, among the inputs of a companion.
  isTorch = value: isDerivation value && value ? cudaCapabilities && value ? cudaSupport;
  tritons = inputNamed "triton" inputs;
  magmas = inputNamed "magma" inputs;
  magma = builtins.head magmas;
  nccls = inputNamed "nccl" inputs;

  pinnedMagmas = inputNamed "magma" (pin.buildInputs or [ ]);
  pinnedMagma = builtins.head pinnedMagmas;

  # The attributes of the derivation that differ from those of the pin's torch, without those that
  # recipes set: each has a fact of its own. Inputs count by their names, as overlays may change
  # their contents.
  named =
    value:
    if isTorch value then
      "torch"
    else if isDerivation value then
      value.pname or value.name
    else if isList value then
      map named value
    else
      plain value;
  setByRecipes = (if isTorch drv then [ ] else [
    "TORCH_CUDA_ARCH_LIST"
    "propagatedBuildInputs"
  ]) ++ [
    "cmakeFlags"
    "name"
    "ninjaFlags"
    "patches"
    "pname"
    "postPatch"
    "preConfigure"
    "requiredSystemFeatures"
    "src"
    "version"
  ];
  differing =
    let
      ours = removeAttrs drv.drvAttrs setByRecipes;
      theirs = removeAttrs pin.drvAttrs setByRecipes;
      names = filter (
        name: !(ours ? ${name}) || !(theirs ? ${name}) || named ours.${name} != named theirs.${name}
      ) (builtins.attrNames (theirs // ours));
    in
    builtins.listToAttrs (
      map (name: {
        inherit name;
        value = {
          recipe = named (ours.${name} or null);
          pin = named (theirs.${name} or null);
        };
      }) names
    );

  cudaVersionOf = pkg: pkg.cudaMajorMinorVersion or null;
  cudaPackagesVersion = pkg: (pkg.cudaPackages or { }).cudaMajorMinorVersion or null;

  unique = builtins.foldl' (seen: x: if builtins.elem x seen then seen else seen ++ [ x ]) [ ];

  # The model keeps url and hash as given; real fetchers keep only derived values.
  patch = p: {
    name = p.name or (baseNameOf p);
    url = p.url or (builtins.head (p.urls or [ null ]));
    hash = p.hash or (p.outputHash or null);
    # fetchpatch removes what a server may change; without that, the hash is of another text.
    isNormalised = p.postFetch or "" != "";
  };

  sourceOf =
    pkg:
    if pkg.src or null == null then
      null
    else
      {
        owner = pkg.src.owner or null;
        repo = pkg.src.repo or null;
        rev = pkg.src.rev or null;
        tag = pkg.src.tag or null;
        hash = pkg.src.hash or (pkg.src.outputHash or null);
        fetchSubmodules = pkg.src.fetchSubmodules or null;
      };

  # The last assignment to a variable counts; an exported variable stays exported.
  exported =
    name: script:
    let
      values = filter isList (builtins.split "(^|\n| )${name}=\"?([^\"\n]*)" script);
    in
    if values == [ ] then null else builtins.elemAt (builtins.elemAt values (builtins.length values - 1)) 1;
in
{
  name = drv.name or null;
  pname = drv.pname or null;
  version = drv.version or null;
  system = drv.system or null;
  drvPath = drv.drvPath;

  # The nixpkgs of the package, as the recipe names it.
  nixpkgs = drv.model.source or null;

  # The arguments of torch.
  cudaSupport = drv.cudaSupport or null;
  gpuTargets = drv.gpuTargets or null;
  # The environment of the build.
  archList = exported "TORCH_CUDA_ARCH_LIST" (drv.preConfigure or "");
  buildVersionEnv = drv.PYTORCH_BUILD_VERSION or null;

  # The CUDA of torch, and every CUDA among the packages that torch and its MAGMA link.
  cudaVersion = if drv.cudaSupport or false then cudaPackagesVersion drv else null;
  cudaVersions = filter (version: version != null) (
    unique (
      map cudaVersionOf (
        inputs ++ concatMap (m: filter isDerivation (m.buildInputs or [ ])) magmas
      )
    )
  );

  # The MAGMA that torch links, under any attribute name.
  magma =
    if magmas == [ ] then
      null
    else
      {
        inherit (magma) name;
        cudaVersion = cudaPackagesVersion magma;
        static = magma.static or null;
        patches = map patch (listOf (magma.patches or null));
        cmakeFlags = magma.cmakeFlags or null;
      };
  # The files of the CUDA packages of torch that do not come from nixpkgs.
  cudaPackageFiles = builtins.mapAttrs (_: package: package.calledFile or null) {
    cudatoolkit = drv.cudaPackages.cudatoolkit or null;
    cudnn = drv.cudaPackages.cudnn or null;
    nccl = drv.cudaPackages.nccl or null;
    libcusparse_lt = drv.cudaPackages.libcusparse_lt or null;
  };
  ncclMakeFlags = if nccls == [ ] then null else (builtins.head nccls).makeFlags or null;

  # The torch that a companion is compiled and installed with.
  torches = unique (map (input: input.drvPath) (filter isTorch inputs));
  setTorch = drv.setTorch or null;
  torchOutputs = unique (
    map (input: input.outputName) (filter isTorch (listOf (drv.propagatedBuildInputs or null)))
  );
  propagated = map named (listOf (drv.propagatedBuildInputs or null));
  tritons = unique (
    map (input: {
      version = input.version or null;
      src = sourceOf input;
    }) tritons
  );

  # What the pinned nixpkgs does without the recipe.
  pin =
    if pin == null then
      null
    else
      {
        inherit differing;
        patches = map patch (listOf (pin.patches or null));
        src = sourceOf pin;
        propagated = map named (listOf (pin.propagatedBuildInputs or null));
        postPatch = pin.postPatch or "";
        preConfigure = pin.preConfigure or "";
        preBuild = pin.preBuild or "";
        magmaPatches =
          if pinnedMagmas == [ ] then [ ] else map patch (listOf (pinnedMagma.patches or null));
        ncclMakeFlags =
          let
            pinnedNccls = inputNamed "nccl" (pin.buildInputs or [ ]);
          in
          if pinnedNccls == [ ] then null else (builtins.head pinnedNccls).makeFlags or null;
        magmaCmakeFlags = if pinnedMagmas == [ ] then [ ] else pinnedMagma.cmakeFlags or [ ];
      };

  src = sourceOf drv;

  patches = map patch (listOf (drv.patches or null));
  buildInputs = map (input: input.pname or input.name or null) (
    filter isDerivation (listOf (drv.buildInputs or null))
  );
  cmakeFlags = drv.cmakeFlags or null;
  ninjaFlags = drv.ninjaFlags or null;
  postPatch = drv.postPatch or null;
  preConfigure = drv.preConfigure or null;
  preBuild = drv.preBuild or null;
  requiredSystemFeatures = drv.requiredSystemFeatures or null;

  passthru = {
    gpuArch = drv.passthru.gpuArch or null;
    cpuISA = drv.passthru.cpuISA or null;
    blasProvider = drv.passthru.blasProvider or null;
    cudaCapabilities = drv.passthru.cudaCapabilities or null;
  };

  meta = {
    description = drv.meta.description or null;
    longDescription = drv.meta.longDescription or null;
    platforms = drv.meta.platforms or null;
    broken = drv.meta.broken or null;
  };
}
