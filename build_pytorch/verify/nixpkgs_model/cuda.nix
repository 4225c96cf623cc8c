# One set of CUDA packages, such as cudaPackages_12_8 or cudaPackages_13_0. Only the CUDA version
# of a member matters, and its name contains it: cuda13.0-cuda_cccl-13.0.x.
{ lib, config, newScope, stdenv, pin, cudaMajorMinorVersion }:
let
  # Without those of Jetson, and those that the CUDA of the set does not support.
  since129 = lib.optional (lib.versionAtLeast cudaMajorMinorVersion "12.9");
  defaultCapabilities =
    [ "7.5" "8.0" "8.6" "8.9" "9.0" "10.0" ] ++ since129 "10.3" ++ [ "12.0" ] ++ since129 "12.1";
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
    cudaMajorVersion = lib.versions.major cudaMajorMinorVersion;

    flags = {
      inherit cudaCapabilities;
      cmakeCudaArchitecturesString = lib.concatStringsSep ";" codes;
      gencodeString = lib.concatMapStringsSep " " (
        code: "-gencode=arch=compute_${code},code=sm_${code}"
      ) codes;
    };
    backendStdenv = stdenv;
  }
  // lib.genAttrs [ "cuda_profiler_api" ] headers
  // lib.genAttrs [ (pin.cccl or "cuda_cccl") ] (
    name:
    (headers name).overrideAttrs (
      lib.optionalAttrs (lib.elem "cccl-headers" pin.has) { postInstall = "ln -s . $out/include/cccl"; }
    )
  )
  // lib.genAttrs [
    "cuda_cudart" "cuda_cupti" "cuda_nvcc" "cuda_nvml_dev" "cuda_nvrtc" "cuda_nvtx" "cudatoolkit"
    "cudnn" "cusparselt" "libcublas" "libcufft" "libcufile" "libcurand" "libcusolver" "libcusparse"
    "libcusparse_lt" "libnvjitlink" "libnvshmem"
  ] libraries
  // {
    # Compiled by nixpkgs for its default capabilities, not for those of torch.
    nccl = (libraries "nccl").overrideAttrs {
      makeFlags = [ "NVCC_GENCODE=${self.flags.gencodeString}" "PREFIX=$(out)" ];
    };
  }
)
