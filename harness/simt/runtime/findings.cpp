// What Python is told: findings, the last fault, counts. JSON through a C interface.
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <set>

#include "machine.h"

namespace simt {

Observer* observer = nullptr;
Observer::~Observer() = default;
void Observer::launch_begin(const Launch&) {}
void Observer::launch_end(const Launch&, bool) {}
void Observer::block_begin(const BlockView&) {}
void Observer::block_end(const BlockView&) {}
void Observer::block_barrier(const BlockView&) {}
void Observer::warp_barrier(const BlockView&, unsigned, uint32_t) {}
void Observer::shared_declared(const BlockView&, const SharedVariable&) {}
void Observer::fence(Scope, const void*) {}
void Observer::atomic(const void*, unsigned, Scope, bool, const void*) {}
void Observer::access(const void*, unsigned, bool, const void*) {}

namespace {
std::mutex lock;
struct Entry {
  std::string json;
  unsigned count;
};
std::map<std::string, Entry> entries;  // by kind, place and kernel
std::vector<std::string> order;
std::string fault_json;

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\') (out += '\\') += char(c);
    else if (c < 32) {
      char u[8];
      snprintf(u, sizeof u, "\\u%04x", c);
      out += u;
    } else out += char(c);
  }
  return out + "\"";
}

// "module" and "offset" of the instruction before a return address, for addr2line.
std::string place(const char* name, const void* pc) {
  if (!pc) return "";
  Dl_info i;
  if (!dladdr(pc, &i) || !i.dli_fname) return "";
  size_t offset = static_cast<const char*>(pc) - static_cast<const char*>(i.dli_fbase) - 1;
  return std::string(",\"") + name + "\":[" + quoted(i.dli_fname) + "," + std::to_string(offset) + "]";
}

std::string triple(const uint3& v) {
  return "[" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + "]";
}
}  // namespace

void report(const Finding& f) {
  static const char* const names[] = {"error", "warning", "note"};
  auto text = [](const char* s) { return std::string(s ? s : ""); };
  std::string place_json = ",\"file\":" + quoted(text(f.file)) + ",\"line\":" +
                           std::to_string(f.line) + ",\"other_line\":" +
                           std::to_string(f.other_line) + place("pc", f.pc) +
                           place("other_pc", f.other_pc) + ",\"kernel\":" + quoted(text(f.kernel));
  std::string key = text(f.kind) + place_json;
  std::lock_guard<std::mutex> hold(lock);
  auto it = entries.find(key);
  if (it != entries.end()) {
    ++it->second.count;
    return;
  }
  if (entries.size() >= 1000) return;
  entries[key] = {"{\"kind\":" + quoted(text(f.kind)) + ",\"severity\":\"" +
                      names[int(f.severity)] + "\",\"message\":" + quoted(text(f.message)) + place_json,
                  1};
  order.push_back(key);
}

void note(const char* kind, Severity severity, const std::string& message, const Waiting& at) {
  const Launch* l = worker && worker->job ? &worker->job->launch : nullptr;
  report({kind, severity, message.c_str(), l ? l->kernel : "", at.file, at.line, 0, nullptr, nullptr});
}

void note_fault(const FaultRecord& f) {
  std::string json = "{\"kind\":" + quoted(f.kind) + ",\"message\":" + quoted(f.message) +
                     ",\"kernel\":" + quoted(f.kernel) + ",\"file\":" + quoted(f.file) +
                     ",\"line\":" + std::to_string(f.line) + ",\"other_line\":" +
                     std::to_string(f.other_line) + place("pc", f.pc);
  if (f.in_block) json += ",\"block\":" + triple(f.block) + ",\"thread\":" + triple(f.thread);
  std::lock_guard<std::mutex> hold(lock);
  fault_json = json + "}";
}

}  // namespace simt

using namespace simt;

// The text lives until the next call.
extern "C" SIMT_API const char* simt_take_findings() {
  static std::string text;
  std::lock_guard<std::mutex> hold(lock);
  text = "[";
  for (const std::string& key : order) {
    if (text.size() > 1) text += ",";
    text += entries[key].json + ",\"count\":" + std::to_string(entries[key].count) + "}";
  }
  text += "]";
  entries.clear();
  order.clear();
  return text.c_str();
}

extern "C" SIMT_API const char* simt_take_fault() {
  static std::string text;
  std::lock_guard<std::mutex> hold(lock);
  text.swap(fault_json);
  fault_json.clear();
  return text.c_str();
}
