// The link from the checkpoint's files to the slot pool, for models larger than memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "channel.h"
#include "disk_file.h"
#include "readers.h"
#include "target.h"

namespace seqmoe {

// Where one piece of an expert lies.
struct Source {
  int64_t file;
  int64_t offset;
};

class DiskLink final : public Channel {
 public:
  // `sources` are [keys, targets]. FileError for a file that cannot be opened.
  DiskLink(const std::vector<std::string>& files, std::vector<Source> sources, std::vector<Target> targets,
           double seconds_per_expert, bool direct)
      : Channel(seconds_per_expert), sources_(std::move(sources)), targets_(std::move(targets)) {
    check_targets(targets_);
    for (const Source& source : sources_)
      if (source.file < 0 || source.file >= static_cast<int64_t>(files.size()) || source.offset < 0)
        throw std::invalid_argument("a source is (index of a file, byte offset): got (" + std::to_string(source.file) +
                                    ", " + std::to_string(source.offset) + ") with " + std::to_string(files.size()) +
                                    " files");
    for (const std::string& file : files) files_.emplace_back(file, direct);
  }

  // Whether all files are read past the page cache.
  bool direct() const {
    return std::all_of(files_.begin(), files_.end(), [](const DiskFile& file) { return file.direct(); });
  }

 private:
  int64_t copy(int32_t key, int32_t slot, const std::atomic<bool>* hurry) override {
    const size_t first = static_cast<size_t>(key) * targets_.size();
    if (key < 0 || first >= sources_.size())
      throw std::out_of_range("expert key " + std::to_string(key) + " has no source");
    blocks_.clear();
    int64_t bytes = 0;
    for (size_t piece = 0; piece < targets_.size(); ++piece) {
      const Source& source = sources_[first + piece];
      const Target& target = targets_[piece];
      auto* const to = reinterpret_cast<std::byte*>(target.device + slot * target.stride);
      for (size_t done = 0; done < target.bytes; done += BounceBuffer::kBytes)
        blocks_.push_back({&files_[source.file], source.offset + static_cast<int64_t>(done),
                           std::min(BounceBuffer::kBytes, target.bytes - done), to + done});
      bytes += static_cast<int64_t>(target.bytes);
    }
    const bool whole = readers_.run(blocks_.size(), [&](size_t index, BounceBuffer& bounce) {
      const Block& block = blocks_[index];
      return block.file->read(block.offset, block.bytes, block.to, bounce, hurry);
    });
    return whole ? bytes : -1;
  }

  // What one thread reads at a time.
  struct Block {
    DiskFile* file;
    int64_t offset;
    size_t bytes;
    std::byte* to;
  };
  // Beside the thread that waits for the expert: two and more readers had twice the rate of one.
  static constexpr int kHelpers = 3;

  std::deque<DiskFile> files_;  // which do not move
  std::vector<Source> sources_;
  std::vector<Target> targets_;
  std::vector<Block> blocks_;  // of the expert that is being read
  Readers readers_{kHelpers};
};

}  // namespace seqmoe
