# The values that torch derives from its CUDA arguments: the architectures, and meta.broken.
{
  lib,
  cudaPackages,
  cudaSupport,
  effectiveMagma,
  gpuTargets,
  pin,
  rocmSupport,
}:
let
  inherit (cudaPackages.flags) cudaCapabilities;

  # The capabilities that the build script of torch supports.
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

  # gpuTargets is not checked: `sm_120` fails only in the build.
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
    # A torch that does not support CUDA 13 needs allowBroken.
    "Unsupported CUDA version" =
      cudaSupport
      && !(lib.elem "torch-on-cuda-13" pin.has)
      && !(lib.elem cudaPackages.cudaMajorVersion [
        "11"
        "12"
      ]);
    "Magma cudaPackages does not match cudaPackages" =
      cudaSupport
      && effectiveMagma.cudaPackages.cudaMajorMinorVersion != cudaPackages.cudaMajorMinorVersion;
  };
}
