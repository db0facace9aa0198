// A place in the user's source, given to the runtime by whatever can wait or fail.
#pragma once

namespace simt {

struct Site {
  const char* what = "";
  const char* file = "";
  int line = 0;
};

}  // namespace simt

// For what reads the runtime's own memory: the checked mode must not see it.
#define SIMT_UNSEEN __attribute__((no_sanitize("thread")))

// As default arguments these name the caller's line.
#define SIMT_SITE const char *simt_file = __builtin_FILE(), int simt_line = __builtin_LINE()
#define SIMT_HERE(what) (::simt::Site{what, simt_file, simt_line})
