// What the pipeline counts.
#pragma once

#include <cstdint>

namespace seqmoe {

// One event's experts.
struct EventCounts {
  int64_t hits = 0;
  int64_t late = 0;
  int64_t loads = 0;
  int64_t host_computed = 0;
};

struct Statistics {
  int64_t events = 0;
  int64_t needed = 0;
  int64_t hits = 0;    // resident when the event started
  int64_t late = 0;    // its prefetch was in flight
  int64_t misses = 0;  // the rest
  int64_t late_unsent = 0;  // misses whose prefetch was still queued
  int64_t prefetch_created = 0;
  int64_t prefetch_sent = 0;
  int64_t prefetch_landed = 0;
  int64_t prefetch_failed = 0;  // sent, but its bytes did not arrive
  int64_t prefetch_used = 0;  // landed and then needed before eviction
  int64_t prefetch_wasted = 0;  // landed and then evicted without having been needed
  int64_t prefetch_dropped = 0;
  int64_t host_computed = 0;  // misses that were left where they are, to be computed there
  int64_t on_demand_transfers = 0;
  int64_t on_demand_failed = 0;  // attempts, each followed by another one or by the error
  double stall_seconds = 0;  // inference waited: for loads on demand, and for prefetches in flight
  double on_demand_seconds = 0;  // the share of it that went into loads on demand, the channel's queue included
  double enter_seconds = 0;  // time in enter() without the stalls
};

}  // namespace seqmoe
