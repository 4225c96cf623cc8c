# One set of CUDA packages, such as cudaPackages_12_8 or cudaPackages_13_0. Only the CUDA version
# of a member matters, and its name contains it: cuda13.0-cuda_cccl-13.0.x.
{ lib, config, newScope, stdenv, cudaMajorMinorVersion }:
let
  inherit (lib) optionalAttrs versionAtLeast versionOlder;

  # The default capabilities with the first CUDA that supports them, except for embedded boards and
  # architecture-specific ones. An approximation of the table in nixpkgs.
  firstCuda = {
    "7.5" = "10.0";
    "8.0" = "11.2";
    "8.6" = "11.2";
    "8.9" = "11.8";
    "9.0" = "11.8";
    "10.0" = "12.8";
    "10.3" = "12.9";
    "12.0" = "12.8";
    "12.1" = "12.9";
  };
  defaultCapabilities = builtins.sort (a: b: versionOlder a b) (
    lib.filter (c: versionAtLeast cudaMajorMinorVersion firstCuda.${c}) (lib.attrNames firstCuda)
  );

  cudaCapabilities =
    if config.cudaCapabilities or [ ] != [ ] then config.cudaCapabilities else defaultCapabilities;

  codes = map (builtins.replaceStrings [ "." ] [ "" ]) cudaCapabilities;

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
        platforms = [ "aarch64-linux" "x86_64-linux" ];
      };
    };

  headers = redistributable [ "out" ];
  libraries = redistributable [ "out" "dev" "include" "lib" ];
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
      cmakeCudaArchitecturesString = lib.concatStringsSep ";" codes;
      gencodeString = lib.concatMapStringsSep " " (
        code: "-gencode=arch=compute_${code},code=sm_${code}"
      ) codes;
      isJetsonBuild = false;
    };
    backendStdenv = stdenv;
  }
  // lib.genAttrs [ "cuda_cccl" "cuda_crt" "cuda_profiler_api" ] headers
  // lib.genAttrs [
    "cuda_cudart" "cuda_cupti" "cuda_nvcc" "cuda_nvml_dev" "cuda_nvrtc" "cuda_nvtx" "cudatoolkit"
    "cudnn" "cusparselt" "libcublas" "libcudss" "libcufft" "libcufile" "libcurand" "libcusolver"
    "libcusparse" "libcusparse_lt" "libnvjitlink"
  ] libraries
  // {
    # Compiled by nixpkgs for its default capabilities, not for those of torch.
    nccl = (libraries "nccl").overrideAttrs {
      makeFlags = [ "NVCC_GENCODE=${self.flags.gencodeString}" "PREFIX=$(out)" ];
    };
  }
  # CUDA 13 removed packages that were deprecated.
  // optionalAttrs (versionOlder cudaMajorMinorVersion "13.0") {
    cuda_nvprof = libraries "cuda_nvprof";
  }
)
