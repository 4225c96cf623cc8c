# One set of CUDA packages, such as cudaPackages_12_8 or cudaPackages_13_0. Only the CUDA version
# of a member matters, and its name contains it: cuda13.0-cuda_cccl-13.0.x.
{ pin, version }:
{ lib, config, newScope, stdenv }:
let
  # Without those of Jetson, and those that the CUDA does not support.
  since129 = lib.optional (builtins.compareVersions version "12.9" >= 0);
  default = [ "7.5" "8.0" "8.6" "8.9" "9.0" "10.0" ] ++ since129 "10.3" ++ [ "12.0" ] ++ since129 "12.1";
  cudaCapabilities = if config.cudaCapabilities or [ ] != [ ] then config.cudaCapabilities else default;
  codes = map (lib.replaceStrings [ "." ] [ "" ]) cudaCapabilities;

  redistributable =
    outputs: attrs: pname:
    stdenv.mkDerivation ({
      inherit pname outputs;
      name = "cuda${version}-${pname}-${version}.x";
      version = "${version}.x";
      passthru.cudaMajorMinorVersion = version;
      meta.license = lib.licenses.nvidiaCudaRedist;
      meta.platforms = [ "aarch64-linux" "x86_64-linux" ];
    } // attrs);
  # Header-only packages have one output, the others several, as in nixpkgs.
  headers = redistributable [ "out" ];
  libraries = redistributable [ "out" "dev" "include" "lib" ];
  cccl = lib.optionalAttrs (lib.elem "cccl-headers" pin.has) { postInstall = "ln -s . $out/include/cccl"; };
in
lib.makeScope newScope (
  self:
  {
    cudaMajorMinorVersion = version;
    cudaMajorVersion = lib.head (builtins.splitVersion version);
    flags = {
      inherit cudaCapabilities;
      cmakeCudaArchitecturesString = lib.concatStringsSep ";" codes;
      gencodeString = toString (map (code: "-gencode=arch=compute_${code},code=sm_${code}") codes);
    };
    backendStdenv = stdenv;
    cuda_profiler_api = headers { } "cuda_profiler_api";
    ${pin.cccl or "cuda_cccl"} = headers cccl (pin.cccl or "cuda_cccl");
    # Compiled by nixpkgs for its default capabilities, not for those of torch.
    nccl = libraries { makeFlags = [ "NVCC_GENCODE=${self.flags.gencodeString}" "PREFIX=$(out)" ]; } "nccl";
  }
  // lib.genAttrs [
    "cuda_cudart" "cuda_cupti" "cuda_nvcc" "cuda_nvml_dev" "cuda_nvrtc" "cuda_nvtx" "cudatoolkit"
    "cudnn" "cusparselt" "libcublas" "libcufft" "libcufile" "libcurand" "libcusolver" "libcusparse"
    "libcusparse_lt" "libnvjitlink" "libnvshmem"
  ] (libraries { })
)
