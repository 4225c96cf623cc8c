# One set of CUDA packages, such as cudaPackages_12_8 or cudaPackages_13_0. Only the CUDA version
# of a member matters, and its name contains it: cuda13.0-cuda_cccl-13.0.x.
{
  lib,
  config,
  newScope,
  stdenv,
  cudaMajorMinorVersion,
}:
let
  inherit (lib) optionalAttrs versionAtLeast versionOlder;

  # The default capabilities: those that this CUDA supports, except for embedded boards and
  # architecture-specific ones. An approximation of the table in nixpkgs.
  defaultCapabilities = lib.filter (c: versionAtLeast cudaMajorMinorVersion c.first) [
    {
      capability = "7.5";
      first = "10.0";
    }
    {
      capability = "8.0";
      first = "11.2";
    }
    {
      capability = "8.6";
      first = "11.2";
    }
    {
      capability = "8.9";
      first = "11.8";
    }
    {
      capability = "9.0";
      first = "11.8";
    }
    {
      capability = "10.0";
      first = "12.8";
    }
    {
      capability = "10.3";
      first = "12.9";
    }
    {
      capability = "12.0";
      first = "12.8";
    }
    {
      capability = "12.1";
      first = "12.9";
    }
  ];

  cudaCapabilities =
    if config.cudaCapabilities or [ ] != [ ] then
      config.cudaCapabilities
    else
      map (c: c.capability) defaultCapabilities;

  # Header-only packages have one output, the others several, as in nixpkgs.
  redistributable =
    outputs: pname:
    stdenv.mkDerivation {
      inherit pname outputs;
      name = "cuda${cudaMajorMinorVersion}-${pname}-${cudaMajorMinorVersion}.x";
      version = "${cudaMajorMinorVersion}.x";
      passthru = { inherit cudaMajorMinorVersion; };
      meta = {
        description = "Stand-in for ${pname} of CUDA ${cudaMajorMinorVersion}";
        license = lib.licenses.nvidiaCudaRedist;
        platforms = [
          "aarch64-linux"
          "x86_64-linux"
        ];
      };
    };

  headers = redistributable [ "out" ];
  libraries = redistributable [
    "out"
    "dev"
    "include"
    "lib"
  ];
in
lib.makeScope newScope (
  self:
  {
    inherit cudaMajorMinorVersion;
    cudaVersion = cudaMajorMinorVersion;
    cudaMajorVersion = lib.versions.major cudaMajorMinorVersion;
    cudaAtLeast = versionAtLeast cudaMajorMinorVersion;
    cudaOlder = versionOlder cudaMajorMinorVersion;

    flags = {
      inherit cudaCapabilities;
      cudaForwardCompat = config.cudaForwardCompat or true;
      cmakeCudaArchitecturesString = lib.concatMapStringsSep ";" (
        builtins.replaceStrings [ "." ] [ "" ]
      ) cudaCapabilities;
      gencodeString = lib.concatMapStringsSep " " (
        capability:
        let
          code = builtins.replaceStrings [ "." ] [ "" ] capability;
        in
        "-gencode=arch=compute_${code},code=sm_${code}"
      ) cudaCapabilities;
      isJetsonBuild = false;
    };
    backendStdenv = stdenv;
  }
  // lib.genAttrs [
    "cuda_cccl"
    "cuda_crt"
    "cuda_profiler_api"
  ] headers
  // lib.genAttrs [
    "cuda_cudart"
    "cuda_cupti"
    "cuda_nvcc"
    "cuda_nvml_dev"
    "cuda_nvrtc"
    "cuda_nvtx"
    "cudatoolkit"
    "cudnn"
    "cusparselt"
    "libcublas"
    "libcudss"
    "libcufft"
    "libcufile"
    "libcurand"
    "libcusolver"
    "libcusparse"
    "libcusparse_lt"
    "libnvjitlink"
  ] libraries
  // {
    # Compiled by nixpkgs for its default capabilities, not for those of torch.
    nccl = (libraries "nccl").overrideAttrs {
      makeFlags = [
        "NVCC_GENCODE=${self.flags.gencodeString}"
        "PREFIX=$(out)"
      ];
    };
  }
  # CUDA 13 removed packages that were deprecated.
  // optionalAttrs (versionOlder cudaMajorMinorVersion "13.0") {
    cuda_nvprof = libraries "cuda_nvprof";
  }
)
