# What a nixpkgs contains, for [pin.NAME.facts] of matrix.toml. What cannot be evaluated is null.
# `nixpkgs` is the function that a revision of nixpkgs is.
{ nixpkgs }:
let
  inherit (builtins) attrNames deepSeq filter head listToAttrs match tryEval;

  pkgsWith = overlays: nixpkgs {
    system = "x86_64-linux";
    config = { allowBroken = true; allowUnfree = true; cudaSupport = true; };
    inherit overlays;
  };
  pkgs = pkgsWith [ ];

  # Removed packages throw an error.
  attempt = value: let found = tryEval (deepSeq value value); in if found.success then found.value else null;
  known = filter (value: attempt value != null);
  named = pattern: known (map (name: attempt (match pattern name)) (attrNames pkgs));
  namesOf = patches: map (patch: patch.name or (baseNameOf patch)) patches;

  pythonOf = name: attempt (pkgs.${head name}.pythonVersion or null);
  cudaOf = name: let set = pkgs.${name}; in
    attempt (set.cudaMajorMinorVersion or (set.cudaVersion or null));
  sets = filter (name: cudaOf name != null) (map head (named "(cudaPackages_[0-9_]+)"));
  each = function: listToAttrs (map (name: { inherit name; value = function name; }) sets);

  cudaSet = name: let
    set = pkgs.${name};
    ours = pkgsWith [ (final: _: { cudaPackages = final.${name}; }) ];
  in {
    cccl = if set ? cccl then "cccl" else if set ? cuda_cccl then "cuda_cccl" else null;
    capabilities = attempt (set.flags.cudaCapabilities or null);
    broken = attempt (attrNames (ours.python3Packages.torch.brokenConditions or { }));
  };

  # PyTorch includes <cccl/...> on CUDA 13.
  hasCccl = name: let set = pkgs.${name}; in
    match ".*include/cccl.*" (set.cccl.postInstall or (set.cuda_cccl.postInstall or "")) != null;
  fixes = {
    cccl-headers = builtins.any hasCccl sets;
    # setup.py hands CMAKE_ARGS to CMake, and no other variable has cmakeFlags.
    cmake-flags = match ".*CMAKE_ARGS.*" (torch.preBuild or "") != null;
  };

  torch = pkgs.python3Packages.torch or { };
  magma = pkgs.magma-cuda-static or { };
in
{
  torch = attempt (torch.version or null);
  python = attempt (pkgs.python3.pythonVersion or null);
  cuda = each cudaOf;
  has = filter (name: attempt fixes.${name} == true) (attrNames fixes);
  magmaUrls = attempt (map (patch: patch.url or (head (patch.urls or [ "" ]))) (magma.patches or [ ]));
  facts = {
    pythons = known (map pythonOf (named "(python3[0-9]+)Packages"));
    magma_patches = attempt (namesOf (magma.patches or [ ]));
    torch_patches = attempt (namesOf (torch.patches or [ ]));
    cuda_sets = each cudaSet;
  };
}
