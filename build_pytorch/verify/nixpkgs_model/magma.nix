# MAGMA, the library for linear algebra on GPUs that torch links. Its CUDA depends on the overlays.
# `has` are the fixes in this revision of nixpkgs.
{ has }:
{
  lib, stdenv, config, fetchpatch, runCommand, cmake, blas, lapack, cudaPackages,
  cudaSupport ? config.cudaSupport,
  # Exactly one back end is required. CUDA is not the default because it is unfree.
  rocmSupport ? !cudaSupport,
  static ? false,
}:
with lib;
stdenv.mkDerivation {
  pname = "magma";
  version = "2.9.0";
  # A recipe that replaces `patches` instead of appending to them loses these.
  patches = [ (runCommand "drop-cmp0037.patch" { } "") ]
    ++ optional (lib.elem "magma-clock-rate" has) (fetchpatch {
      name = "fix-cuda13-compat.patch";
      url = "https://github.com/icl-utk-edu/magma/commit/235aefb7b064954fce09d035c69907ba8a87cbcd.patch";
      hash = lib.fakeHash; # never fetched
    });
  nativeBuildInputs = [ cmake ] ++ optional cudaSupport cudaPackages.cuda_nvcc;
  buildInputs = [ blas lapack ]
    ++ optionals cudaSupport (with cudaPackages; [ (cudaPackages.cccl or cudaPackages.cuda_cccl) cuda_cudart libcublas libcusparse ]);
  cmakeFlags = [ (cmakeBool "BUILD_SHARED_LIBS" (!static)) (cmakeBool "MAGMA_ENABLE_CUDA" cudaSupport) ]
    ++ optional cudaSupport (cmakeFeature "CMAKE_CUDA_ARCHITECTURES" cudaPackages.flags.cmakeCudaArchitecturesString);
  passthru = { inherit cudaPackages cudaSupport static; };
  meta = { license = lib.licenses.bsd3; platforms = lib.platforms.linux; broken = cudaSupport == rocmSupport; };
}
