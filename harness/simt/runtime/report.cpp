// What the Python side asks for: launches, the last fault, findings. As one JSON text.
#include "report.h"

#include <dlfcn.h>

#include <map>

#include "limits.h"

namespace simt {

struct Found {
  std::string kind, severity, message, kernel, file, other_file;
  int line = 0, other_line = 0;
  const void *pc = nullptr, *other_pc = nullptr;
  unsigned long long count = 1;
};

static std::mutex mutex;
static std::vector<Found> all;
static unsigned long long launches = 0;
static bool has_fault = false;
static Fault last;

void count_launch() { ++launches; }

void keep_fault(const Fault& f) {
  last = f;
  has_fault = true;
}

static bool same(const Found& f, const Found& g) {
  return f.kind == g.kind && f.line == g.line && f.other_line == g.other_line && f.pc == g.pc &&
         f.other_pc == g.other_pc && f.kernel == g.kernel;
}

void find(const char* kind, const char* severity, const std::string& message, Site site,
          const void* pc, Site other, const void* other_pc) {
  std::lock_guard<std::mutex> lock(mutex);
  Found f;
  f.kind = kind;
  f.severity = severity;
  f.message = message;
  f.file = site.file;
  f.line = site.line;
  f.other_file = other.file;
  f.other_line = other.line;
  f.pc = pc;
  f.other_pc = other_pc;
  if (tls_worker && tls_worker->current) f.kernel = tls_worker->current->launch->kernel.name;
  for (Found& old : all)
    if (same(old, f)) {
      ++old.count;
      return;
    }
  if (all.size() < 1000) all.push_back(f);
}

static std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (unsigned char c : s) {
    char escaped[8];
    snprintf(escaped, sizeof escaped, c < 32 || c == '"' || c == '\\' ? "\\u%04x" : "%c", c);
    out += escaped;
  }
  return out + "\"";
}

static std::string place(const char* prefix, const std::string& file, int line, const void* pc) {
  std::string p(prefix);
  std::string out = ",\"" + p + "file\":" + quoted(file) + ",\"" + p +
                    "line\":" + std::to_string(line);
  Dl_info info;
  if (!pc || !dladdr(pc, &info)) return out;
  const auto offset = static_cast<const char*>(pc) - static_cast<const char*>(info.dli_fbase);
  return out + ",\"" + p + "module\":" + quoted(info.dli_fname) + ",\"" + p +
         "offset\":" + std::to_string(offset);
}

static std::string as_json(const Found& f) {
  return "{\"kind\":" + quoted(f.kind) + ",\"severity\":" + quoted(f.severity) +
         ",\"message\":" + quoted(f.message) + ",\"kernel\":" + quoted(f.kernel) +
         ",\"count\":" + std::to_string(f.count) + place("", f.file, f.line, f.pc) +
         place("other_", f.other_file, f.other_line, f.other_pc) + "}";
}

static std::string as_json(const Fault& f) {
  return "{\"kind\":" + quoted(f.kind) + ",\"message\":" + quoted(f.message) +
         ",\"kernel\":" + quoted(f.kernel) + ",\"block\":" + quoted(text(f.block)) +
         ",\"thread\":" + quoted(text(f.thread)) + place("", f.file, f.line, f.pc) + "}";
}

extern "C" __attribute__((visibility("default"))) const char* simt_take_findings() {
  static std::string out;
  report_unchecked();
  out = "[";
  for (const Found& f : all) out += (out.size() > 1 ? "," : "") + as_json(f);
  all.clear();
  return (out += "]").c_str();
}

extern "C" __attribute__((visibility("default"))) const char* simt_take_fault() {
  static std::string out;
  out = has_fault ? as_json(last) : "null";
  has_fault = false;
  return out.c_str();
}

extern "C" __attribute__((visibility("default"))) unsigned long long simt_take_launches() {
  const unsigned long long n = launches;
  launches = 0;
  return n;
}

}  // namespace simt
