# A companion: a package of nixpkgs that is compiled against the PyTorch of one variant. The recipes
# of companions are stubs that pass their values to this function, which is outside of their folders
# because Flox takes every file there for a package.
{
  # The nixpkgs of the caller, for recipes of variants that are written by hand and take it
  pkgs,
  # The pinned nixpkgs of the release with the overlays of the variant
  nixpkgs_pinned,
  # The derivation of the variant; null for the one that its recipe yields
  torch_of_variant,
}:

{
  # Recipe of the variant
  variant,
  # The package of nixpkgs, such as nixpkgs_pinned.python3Packages.torchvision
  package,
  pname,
  # How the package is called in texts, such as TorchVision
  title,
  version,
  # Arguments of fetchFromGitHub and `keepPatches`; null for source and patches of nixpkgs
  source ? null,
  # Compiler flags of the CPU instruction set
  cpuFlags,
  # Limit of parallel compile jobs
  maxJobs,
}:

let
  inherit (nixpkgs_pinned) lib;

  # The derivation of the variant, unchanged in every attribute: with another one, PyTorch would be
  # compiled once more. A recipe that is written by hand may have fewer arguments.
  torch =
    if torch_of_variant != null then
      torch_of_variant
    else
      let
        recipe = import variant;
        arguments = { inherit pkgs nixpkgs_pinned; };
      in
      recipe (builtins.intersectAttrs (builtins.functionArgs recipe) arguments);

  name = "${title} ${version} for ${lib.removeSuffix ".nix" (baseNameOf variant)}";

  # Version, source and patches change together: those of nixpkgs are for another PyTorch.
  ownSource =
    oldAttrs:
    lib.optionalAttrs (source != null) {
      inherit version;
      # meta.changelog of newer nixpkgs reads `tag`; beside the derivation, it changes nothing of it.
      src = nixpkgs_pinned.fetchFromGitHub (removeAttrs source [ "keepPatches" ]) // {
        tag = source.rev;
      };
      patches = if source.keepPatches then oldAttrs.patches or [ ] else [ ];
    };
in
# Two stages. override comes first: nixpkgs takes the compiler, CUDA and the GPU architectures from
# torch. overrideAttrs changes single attributes.
(package.override { inherit torch; }).overrideAttrs (
  oldAttrs:
  ownSource oldAttrs
  // {
    inherit pname;

    # Nix sends the build only to builders with these features.
    requiredSystemFeatures = torch.requiredSystemFeatures or [ ];

    # The tests that nixpkgs runs need packages of its own set, such as TorchVision, for which the
    # PyTorch of the set would be compiled. For the packages without such tests it changes nothing.
    doInstallCheck = false;

    # Whoever installs the package needs torch itself, which is one of several outputs.
    propagatedBuildInputs = (oldAttrs.propagatedBuildInputs or [ ]) ++ [ torch.out ];

    preConfigure =
      (oldAttrs.preConfigure or "")
      + ''

        # CPU instruction set
        export CXXFLAGS="${toString cpuFlags} $CXXFLAGS"
        export CFLAGS="${toString cpuFlags} $CFLAGS"

        # Limit of parallel compile jobs: PyTorch's build extension reads MAX_JOBS, CMake and Ninja get
        # NIX_BUILD_CORES, where 0 means all cores.
        export MAX_JOBS=${toString maxJobs}
        cores=''${NIX_BUILD_CORES:-0}
        if [ "$cores" -eq 0 ]; then cores=$(nproc); fi
        export NIX_BUILD_CORES=$((cores < ${toString maxJobs} ? cores : ${toString maxJobs}))

        # Each step of Ninja in a line of its own, which Nix keeps
        export TERM=dumb

      ''
      + lib.optionalString torch.cudaSupport ''
        # The GPU architectures of the variant
        export TORCH_CUDA_ARCH_LIST="${torch.gpuArch}"

      ''
      + ''
        echo "${name}"
        echo "CPU flags: ${toString cpuFlags}"
        echo "Jobs:      $NIX_BUILD_CORES"
      '';

    passthru = (oldAttrs.passthru or { }) // {
      gpuArch = torch.gpuArch or null;
      cpuISA = torch.cpuISA or null;
    };

    meta = (oldAttrs.meta or { }) // {
      description = "${title} ${version} for ${torch.meta.description}";
      longDescription = torch.meta.longDescription or "";
      inherit (torch.meta) platforms;
    };
  }
)
