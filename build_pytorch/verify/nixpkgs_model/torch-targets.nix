# What torch decides from its arguments about CUDA: the architectures, and whether it is broken.
{
  lib,
  cudaPackages,
  cudaSupport,
  effectiveMagma,
  gpuTargets,
  rocmSupport,
}:
let
  inherit (cudaPackages.flags) cudaCapabilities;

  # What torch's own build script knows
  torchCapabilities = [
    "7.5"
    "8.0"
    "8.6"
    "8.7"
    "8.9"
    "9.0"
    "9.0a"
    "10.0"
    "10.0a"
    "10.1"
    "10.3"
    "11.0"
    "12.0"
    "12.0a"
    "12.1"
  ];
in
rec {
  supportedCapabilities = lib.intersectLists torchCapabilities cudaCapabilities;

  # gpuTargets is taken as it comes: `sm_120` gets as far as the build.
  gpuTargetString = lib.concatStringsSep ";" (
    if gpuTargets != [ ] then
      gpuTargets
    else
      lib.throwIf (supportedCapabilities == [ ])
        "No supported GPU targets specified. Requested GPU targets: ${toString cudaCapabilities}"
        supportedCapabilities
  );

  brokenConditions = lib.filterAttrs (_: broken: broken) {
    "CUDA and ROCm are mutually exclusive" = cudaSupport && rocmSupport;
    # 13 is newer than this version of torch knows: whoever builds with it says allowBroken.
    "Unsupported CUDA version" =
      cudaSupport
      && !(lib.elem cudaPackages.cudaMajorVersion [
        "11"
        "12"
      ]);
    "Magma cudaPackages does not match cudaPackages" =
      cudaSupport
      && effectiveMagma.cudaPackages.cudaMajorMinorVersion != cudaPackages.cudaMajorMinorVersion;
  };
}
