# The facts of one evaluated recipe, read from the derivation where possible: passthru shows what
# was requested, inputs and phases show what is built. Facts are lazy: one that cannot be evaluated
# does not affect the others. A fact that the package does not have is null.
#
# `pin` is the package that the pinned nixpkgs makes from the same arguments, or null.
{ isDerivation, plain }:
pin: drv:
let
  inherit (builtins) concatMap filter head isList;

  listOf = value: if isList value then value else filter (x: x != null) [ value ];
  unique = builtins.foldl' (seen: x: if builtins.elem x seen then seen else seen ++ [ x ]) [ ];
  # The attributes of a set by their names; null for one that is missing.
  pick = names: set: builtins.listToAttrs (
    map (name: { inherit name; value = set.${name} or null; }) names
  );

  buildInputs = pkg: filter isDerivation (listOf (pkg.buildInputs or null));
  inputs =
    buildInputs drv
    ++ filter isDerivation (
      listOf (drv.nativeBuildInputs or null) ++ listOf (drv.propagatedBuildInputs or null)
    );
  # The first package of a name; an empty set if there is none.
  named = pname: packages: head (filter (input: input.pname or "" == pname) packages ++ [ { } ]);
  magma = named "magma" inputs;
  pinnedMagma = named "magma" (buildInputs pin);

  # A torch, under any name, among the inputs of a companion.
  isTorch = value: isDerivation value && value ? cudaCapabilities && value ? cudaSupport;

  # Inputs count by their names, as overlays may change their contents.
  byName =
    value:
    if isTorch value then
      "torch"
    else if isDerivation value then
      value.pname or value.name
    else if isList value then
      map byName value
    else
      plain value;

  # The attributes of the derivation that differ from those of the pin's package, without those that
  # recipes set: each has a fact of its own.
  differing =
    let
      setByRecipes = [
        "cmakeFlags" "name" "ninjaFlags" "patches" "pname" "postPatch" "preConfigure"
        "requiredSystemFeatures" "src" "version"
      ]
      ++ (if isTorch drv then [ ] else [ "doInstallCheck" "propagatedBuildInputs" ]);
      # A newer torch has the build version in `env`, where it follows `version`.
      follows = attrs: attrs ? env && attrs.env.PYTORCH_BUILD_VERSION or null == attrs.version;
      others =
        attrs:
        removeAttrs attrs setByRecipes
        // (if follows attrs then { env = removeAttrs attrs.env [ "PYTORCH_BUILD_VERSION" ]; } else { });
      ours = others drv.drvAttrs;
      theirs = others pin.drvAttrs;
      # nixpkgs takes the architectures of a companion from torch; the hook sets them again.
      isSame =
        name:
        ours ? ${name}
        && theirs ? ${name}
        && (name == "TORCH_CUDA_ARCH_LIST" && !isTorch drv || byName ours.${name} == byName theirs.${name});
    in
    builtins.mapAttrs (name: _: {
      recipe = byName (ours.${name} or null);
      pin = byName (theirs.${name} or null);
    }) (removeAttrs (theirs // ours) (filter isSame (builtins.attrNames ours)));

  cudaOf = pkg: (pkg.cudaPackages or { }).cudaMajorMinorVersion or null;

  # The model keeps url and hash as given; real fetchers keep only derived values.
  patchesOf =
    pkg:
    map (p: {
      name = p.name or (baseNameOf p);
      url = p.url or (head (p.urls or [ null ]));
      hash = p.hash or (p.outputHash or null);
      # fetchpatch removes what a server may change; without that, the hash is of another text.
      isNormalised = p.postFetch or "" != "";
    }) (listOf (pkg.patches or null));

  sourceOf =
    pkg:
    if pkg.src or null == null then null else
      pick [ "owner" "repo" "rev" "fetchSubmodules" ] pkg.src
      // { hash = pkg.src.hash or (pkg.src.outputHash or null); };

  hooks = [ "postPatch" "preConfigure" "preBuild" ];
in
pick (
  hooks
  ++ [
    "name" "pname" "version" "system" "cudaSupport" "setTorch" "cmakeFlags" "ninjaFlags"
    "requiredSystemFeatures"
  ]
) drv
// {
  inherit (drv) drvPath;

  # The libraries behind the BLAS among the inputs.
  blas = unique (concatMap (input: listOf (input.implementation or null)) (buildInputs drv));

  # The nixpkgs of the package, as the recipe names it.
  nixpkgs = drv.model.source or null;
  buildVersionEnv = drv.PYTORCH_BUILD_VERSION or (drv.env.PYTORCH_BUILD_VERSION or null);

  # The CUDA of torch, and every CUDA among the packages that torch and its MAGMA link.
  cudaVersion = if drv.cudaSupport or false then cudaOf drv else null;
  cudaVersions = filter (version: version != null) (
    unique (map (pkg: pkg.cudaMajorMinorVersion or null) (inputs ++ buildInputs magma))
  );
  # The MAGMA that torch links, under any attribute name.
  magma =
    if magma == { } then null else
      pick [ "static" "cmakeFlags" ] magma
      // { cudaVersion = cudaOf magma; patches = patchesOf magma; };
  # The files of the CUDA packages of torch that do not come from nixpkgs.
  cudaPackageFiles = builtins.mapAttrs (_: package: package.calledFile or null) (
    pick [ "cudatoolkit" "cudnn" "nccl" "libcusparse_lt" ] (drv.cudaPackages or { })
  );
  ncclMakeFlags = (named "nccl" inputs).makeFlags or null;

  # The torch that a companion is compiled and installed with.
  torches = unique (map (input: input.drvPath) (filter isTorch inputs));
  torchOutputs = unique (
    map (input: input.outputName) (filter isTorch (listOf (drv.propagatedBuildInputs or null)))
  );
  propagated = map byName (listOf (drv.propagatedBuildInputs or null));

  src = sourceOf drv;
  patches = patchesOf drv;
  passthru = pick [ "gpuArch" "cpuISA" "blasProvider" "cudaCapabilities" ] (drv.passthru or { });
  meta = pick [ "description" "longDescription" "platforms" "broken" ] (drv.meta or { });

  # What the pinned nixpkgs does without the recipe.
  pin =
    if pin == null then null else
      builtins.mapAttrs (_: text: if text == null then "" else text) (pick hooks pin)
      // {
        inherit differing;
        patches = patchesOf pin;
        src = sourceOf pin;
        propagated = map byName (listOf (pin.propagatedBuildInputs or null));
        magmaPatches = patchesOf pinnedMagma;
        magmaCmakeFlags = pinnedMagma.cmakeFlags or [ ];
        ncclMakeFlags = (named "nccl" (buildInputs pin)).makeFlags or null;
      };
}
