#pragma once
#include <string>

#include "../include/simt/errors.h"
#include "../include/simt/launch.h"

namespace simt {

std::string refusal(const Config&, const char* kernel);  // empty: the device would take it
void note_launch(const Kernel&);
void report_unchecked();
uint64_t resident_limit(const Config&, unsigned threads, size_t static_bytes);

}  // namespace simt
