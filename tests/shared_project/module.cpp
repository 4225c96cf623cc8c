#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const char* arch_list() { return TEXT(CUDA_ARCH_FLAGS); }
