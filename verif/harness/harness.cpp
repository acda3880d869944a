// Runs batches of requests on one Verilated node.
//
// A cycle has two steps. With the clock low the inputs of the cycle are set and the model is evaluated, so that outputs
// which depend on them in the same cycle are right when they are sampled. Then the clock rises. When no input changes,
// everything is settled since the last rise, and the first step only has to make the model forget that the clock was
// high (ONE_CLOCK_EDGE; it speeds up quiet cycles only).

#include "node.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bus.h"
#include "verilated.h"
#ifdef ONE_CLOCK_EDGE
#include "Vnode___024root.h"
#endif
#ifdef COVERAGE
#include "verilated_cov.h"
#endif
#ifdef WAVES
#include "verilated_vcd_c.h"
#endif

void vl_fatal(const char* file, int line, const char*, const char* message) {
    throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + message);
}

namespace {

// A hash in which every bit of the argument moves every bit of the result (splitmix64).
inline uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

struct Sender {
    std::vector<uint32_t> queue;  // Requests of this port in the order of the batch.
    size_t head = 0;              // Position of the request being sent or waited for.
    uint64_t beat = 0;            // Beats of it that were accepted.
    uint64_t beats = 0;           // All its beats; 0 while it waits for its conditions.
    bool raised = false;          // A beat is offered.
    bool patient = false;         // The request before `head` is waited for: it may have to be sent again.
    bool refused = false;         // Its last answer was NOT_READY.
    bool woken = false;           // A wake came since the first beat of a request was last accepted.
    uint64_t deadline = 0;        // From this cycle on its answer is the last, whatever it is.
    Request header;
};

struct Receiver {
    size_t head = 0;     // Position in the sender's queue of the request being answered.
    uint64_t beat = 0;   // Beats of the response that were taken.
    uint64_t beats = 0;  // All its beats, known with the header.
    bool wake = false;   // The message being taken is a wake and answers nothing.
    bool held = false;   // A beat was seen and not taken; it must stay as it was.
    uint8_t held_last = 0;
    uint8_t held_data[BEAT_BYTES];
};

// Which mutant of verif.mutation is alive; false in a model that has none.
template <typename Model>
bool select_mutant(Model& model, uint32_t number) {
    if constexpr (requires { model.mutsel; }) {
        model.mutsel = number;
        return true;
    } else {
        return false;
    }
}

// Whether the node asks for a reset; a stand-in never does.
template <typename Model>
bool asks_for_reset(const Model& model) {
    if constexpr (requires { model.reset_request; }) return model.reset_request;
    return false;
}

class Harness {
public:
    explicit Harness(uint64_t trace_limit) : trace_limit_bytes(trace_limit * TRACE_BYTES) {
#ifdef WAVES
        context.traceEverOn(true);
#endif
        node = std::make_unique<Vnode>(&context, "");
        bind_pins(*node, pins);
        bus.reset(*node);
        drop_run();
    }

    ~Harness() {
        close_waves();
        node->final();
    }

    void reset(uint32_t boot_epoch, uint32_t cycles) {
        drop_run();
        trace.clear();
        for (Pins& pin : pins) *pin.req_valid = 0;
        for (Receiver& r : receivers) r = Receiver();
        bus.reset(*node);
        was_down = 0;
        node->boot_epoch = boot_epoch;
        node->rst = 1;
        for (uint32_t i = 0; i < cycles; ++i) {
            node->clk = 0;
            node->eval();
            node->clk = 1;
            node->eval();
        }
        node->rst = 0;
        cycle = 0;
        std::memset(request_beats, 0, sizeof request_beats);
        std::memset(response_beats, 0, sizeof response_beats);
        std::memset(wakes, 0, sizeof wakes);
        reset_requests = 0;
    }

    bool mutant(uint32_t number) {
        changed = true;
        return select_mutant(*node, number);
    }

    void start(uint32_t n, const Batch* batch_, const uint8_t* payload_, Result* results_, uint8_t* data_,
               uint64_t data_capacity_, uint32_t accesses_count, Access* accesses, const Options* options_) {
        drop_run();
        count = unanswered = n;
        batch = batch_;
        payload = payload_;
        results = results_;
        data = data_;
        data_capacity = data_capacity_;
        bus.start(accesses, accesses_count);
        options = *options_;
        first_cycle = cycle;
        outcome.code = RUNNING;
        for (uint32_t i = 0; i < n; ++i) senders[batch[i].port].queue.push_back(i);
    }

    uint32_t advance(uint64_t cycles) {
        if (outcome.code != RUNNING) return outcome.code;
        try {
            for (uint64_t i = 0; i < cycles && outcome.code == RUNNING; ++i) step();
        } catch (const std::exception& error) {
            message = error.what();
            fail(MODEL_ERROR, -1, -1);
        }
        return outcome.code;
    }

    Outcome report() {
        outcome.unanswered = unanswered;
        outcome.registers_done = bus.done();
        outcome.ports_down = was_down;
        outcome.data_bytes = data_bytes;
        if (outcome.code <= TRACE_FULL) {
            outcome.cycle = cycle;
            outcome.request = outcome.port = -1;
            for (uint64_t i = 0; unanswered && i < count; ++i) {
                if (results[i].done == NO) {
                    outcome.request = i;
                    outcome.port = batch[i].port;
                    outcome.sent_beats = sent_beats(i);
                    break;
                }
            }
        }
        return outcome;
    }

    bool waves(const char* path, uint64_t first, uint64_t last) {
#ifdef WAVES
        close_waves();
        waves_path = path;
        waves_first = first;
        waves_last = last;
        return true;
#else
        (void)path, (void)first, (void)last;
        return false;
#endif
    }

    void close_waves() {
#ifdef WAVES
        if (tracer) tracer->close();
        tracer.reset();
        waves_path.clear();
#endif
    }

    // Write what has been counted since the node was made; false if nothing is counted.
    bool coverage(const char* path) {
#ifdef COVERAGE
        context.coveragep()->write(path);
        return true;
#else
        (void)path;
        return false;
#endif
    }

    uint64_t cycle = 0;  // Since reset.
    std::vector<uint8_t> trace;
    uint64_t reset_requests = 0;  // Cycles in which the node asked for a reset.
    uint64_t request_beats[PORTS] = {}, response_beats[PORTS] = {}, wakes[PORTS] = {};
    std::string message;

private:
    // What is left of a run goes; but a wake can be under way when one ends, and goes on in the next.
    void drop_run() {
        count = unanswered = data_bytes = data_capacity = 0;
        batch = nullptr;
        outcome = Outcome{};
        outcome.code = COMPLETE;
        for (Sender& s : senders) {
            s.queue.clear();
            s.head = s.beat = s.beats = 0;
            s.raised = s.patient = s.refused = s.woken = false;
        }
        for (Receiver& r : receivers) r.head = 0;
        bus.start(nullptr, 0);
        changed = true;
        for (Pins& pin : pins) *pin.rsp_ready = 1;
    }

    void fail(Code code, int port, int64_t request, uint64_t expected = 0, uint64_t found = 0) {
        if (outcome.code != RUNNING) return;  // The first error of a cycle is reported.
        outcome.code = code;
        outcome.port = port;
        outcome.cycle = cycle;
        outcome.request = request;
        outcome.expected = expected;
        outcome.found = found;
        outcome.sent_beats = request < 0 ? 0 : sent_beats(request);
    }

    uint64_t sent_beats(uint64_t i) const {
        const Sender& s = senders[batch[i].port];
        if (s.head < s.queue.size() && s.queue[s.head] == i) return s.beat;
        return s.head < s.queue.size() && s.queue[s.head] < i ? 0 : beats_of(batch[i]);
    }

    static uint64_t beats_of(const Batch& request) {
        return REQUEST_BEATS + (request.payload_bytes + BEAT_BYTES - 1) / BEAT_BYTES;
    }

    void step() {
        down = node->ports_down;
        uint64_t draws[PORTS] = {};
        if (options.idle | options.backpressure) {
            for (unsigned p = 0; p < PORTS; ++p) {
                draws[p] = mix(options.seed ^ mix(cycle * PORTS + p));
                const bool ready = (draws[p] >> 16 & 0xFFFF) >= options.backpressure;
                changed |= *pins[p].rsp_ready != ready;
                *pins[p].rsp_ready = ready;
            }
        }
        // A skipped request counts as answered at once, also for ports that were looked at before it.
        do {
            skipped = false;
            for (unsigned p = 0; p < PORTS; ++p) offer(p, draws[p] & 0xFFFF);
        } while (skipped);
        changed |= bus.offer(*node, cycle - first_cycle);

        settle();
        dump(2 * cycle);

        for (unsigned p = 0; p < PORTS; ++p) {
            if (down >> p & 1) {
                if (!(was_down >> p & 1)) lose(p);
                continue;
            }
            accept(p);
            receive(p);
        }
        was_down = down;
        reset_requests += asks_for_reset(*node);
        if (!bus.sample(*node, cycle)) fail(BUS_UNASKED, -1, -1);
        if (node->trace_valid) {
            const auto* record = reinterpret_cast<const uint8_t*>(&node->trace_data);
            trace.insert(trace.end(), record, record + TRACE_BYTES);
            if (trace.size() >= trace_limit_bytes) fail(TRACE_FULL, -1, -1);
        }

        node->clk = 1;
        node->eval();
        dump(2 * cycle + 1);
        ++cycle;

        const uint64_t passed = cycle - first_cycle;
        if (outcome.code != RUNNING) return;
        if (!unanswered && bus.finished() && passed >= options.min_cycles)
            outcome.code = COMPLETE;
        else if (passed >= options.max_cycles)
            outcome.code = CYCLE_LIMIT;
    }

    void settle() {
#ifdef ONE_CLOCK_EDGE
        if (!changed) {
            node->rootp->__Vtrigprevexpr___TOP__clk__0 = 0;
            return;
        }
#endif
        changed = false;
        node->clk = 0;
        node->eval();
    }

    void offer(unsigned p, uint64_t draw) {
        Sender& s = senders[p];
        const Pins& pin = pins[p];
        const bool is_down = down >> p & 1;
        if (s.raised && !is_down) return;
        s.raised = false;
        if (*pin.req_valid) {
            *pin.req_valid = 0;
            changed = true;
        }
        if (is_down || (s.beats == 0 && !begin(s))) return;
        if (draw < options.idle) return;
        const Batch& request = batch[s.queue[s.head]];
        if (s.beat < REQUEST_BEATS) {
            std::memcpy(pin.req_data, reinterpret_cast<const uint8_t*>(&s.header) + s.beat * BEAT_BYTES, BEAT_BYTES);
        } else {
            const uint64_t offset = (s.beat - REQUEST_BEATS) * BEAT_BYTES;
            const uint64_t left = request.payload_bytes - offset;
            const uint8_t* from = payload + request.payload_offset + offset;
            if (left >= BEAT_BYTES) {
                std::memcpy(pin.req_data, from, BEAT_BYTES);
            } else {
                std::memset(pin.req_data, 0, BEAT_BYTES);
                std::memcpy(pin.req_data, from, left);
            }
        }
        *pin.req_last = s.beat + 1 == s.beats;
        *pin.req_valid = 1;
        s.raised = changed = true;
    }

    // Get the next request ready to be sent; false while there is none or it has to wait.
    bool begin(Sender& s) {
        if (s.patient) {
            if (!s.refused || !(s.woken || cycle >= s.deadline)) return false;
            s.patient = s.refused = false;
            s.beats = beats_of(batch[s.queue[--s.head]]);
            return true;
        }
        for (; s.head < s.queue.size(); ++s.head) {
            const uint32_t i = s.queue[s.head];
            const Batch& request = batch[i];
            if (cycle - first_cycle < request.earliest_cycle) return false;
            if (request.after >= 0 && results[request.after].done == NO) return false;
            const Result* handle = request.handle_from >= 0 ? &results[request.handle_from] : nullptr;
            const Result* session = request.session_from >= 0 ? &results[request.session_from] : nullptr;
            if ((handle && handle->done == NO) || (session && session->done == NO)) return false;
            if ((handle && !(handle->done == ANSWERED && carries_handle(handle->header))) ||
                (session && !(session->done == ANSWERED && carries_session(session->header)))) {
                results[i].done = SKIPPED;
                --unanswered;
                skipped = true;
                continue;
            }
            s.header = request.header;
            if (handle) copy_handle(s.header, handle->header);
            if (session) copy_session(s.header, session->header);
            s.beat = 0;
            s.beats = beats_of(request);
            return true;
        }
        return false;
    }

    void accept(unsigned p) {
        Sender& s = senders[p];
        if (!s.raised || !*pins[p].req_ready) return;
        s.raised = false;
        ++request_beats[p];
        Result& result = results[s.queue[s.head]];
        if (s.beat == 0) {
            ++result.tries;
            s.woken = false;
        }
        if (++s.beat == s.beats) {
            const uint32_t patience = batch[s.queue[s.head]].patience;
            result.sent_cycle = cycle;
            s.patient = patience > 0;
            if (result.tries == 1) s.deadline = cycle + patience;
            ++s.head;
            s.beat = s.beats = 0;
        }
    }

    // The port has gone down: what it was sent and has not answered is lost.
    void lose(unsigned p) {
        Sender& s = senders[p];
        Receiver& r = receivers[p];
        for (const size_t end = std::min(s.head + 1, s.queue.size()); r.head < end; ++r.head) {
            Result& result = results[s.queue[r.head]];
            if (result.done != NO) continue;
            if (result.tries == 0) break;
            result.done = LOST;
            result.data_bytes = 0;
            result.first_cycle = 0;
            result.last_cycle = cycle;
            result.header = Response{};
            --unanswered;
        }
        if (s.head < r.head) {
            s.head = r.head;
            s.beat = s.beats = 0;
        }
        s.patient = s.refused = false;
        r.beat = 0;
        r.held = false;
    }

    void receive(unsigned p) {
        const Pins& pin = pins[p];
        Receiver& r = receivers[p];
        if (!*pin.rsp_valid) {
            if (r.held) fail(WITHDRAWN, p, r.wake ? -1 : answering(p));
            return;
        }
        if (r.beat == 0 && !r.held) r.wake = is_wake(pin.rsp_data);
        const int64_t i = r.wake ? -1 : answering(p);
        if (r.held && (*pin.rsp_last != r.held_last || std::memcmp(pin.rsp_data, r.held_data, BEAT_BYTES) != 0)) {
            fail(UNSTABLE, p, i);
            return;
        }
        if (!r.wake) {
            if (i < 0) return fail(UNASKED, p, -1);
            if (r.head == senders[p].head) return fail(EARLY, p, i);
        }
        if (*pin.rsp_ready) {
            r.held = false;
            ++response_beats[p];
            if (r.wake)
                take_wake(p);
            else
                take(p, i);
        } else if (!r.held) {
            r.held = true;
            r.held_last = *pin.rsp_last;
            std::memcpy(r.held_data, pin.rsp_data, BEAT_BYTES);
        }
    }

    // The request that a response on port p answers, or -1 if every request was.
    int64_t answering(unsigned p) {
        const Sender& s = senders[p];
        Receiver& r = receivers[p];
        while (r.head < s.head && results[s.queue[r.head]].done == SKIPPED) ++r.head;
        return r.head < s.head || s.beat > 0 ? int64_t{s.queue[r.head]} : -1;
    }

    // Take one beat of the response to request i.
    void take(unsigned p, int64_t i) {
        const Pins& pin = pins[p];
        Receiver& r = receivers[p];
        Result& result = results[i];
        const uint64_t beat = r.beat++;
        if (beat == 0) {
            result.first_cycle = cycle;
            r.beats = RESPONSE_BEATS;
        }
        if (beat < RESPONSE_BEATS) {
            constexpr uint64_t part = BEAT_BYTES < sizeof(Response) ? BEAT_BYTES : sizeof(Response);
            std::memcpy(reinterpret_cast<uint8_t*>(&result.header) + beat * part, pin.rsp_data, part);
            if (r.beat == RESPONSE_BEATS && !begin_payload(p, i, r, result)) return;
        } else {
            const uint64_t offset = (beat - RESPONSE_BEATS) * BEAT_BYTES;
            uint8_t* to = data + result.data_offset + offset;
            if (result.data_bytes - offset >= BEAT_BYTES)
                std::memcpy(to, pin.rsp_data, BEAT_BYTES);
            else
                std::memcpy(to, pin.rsp_data, result.data_bytes - offset);
        }
        if (!ends(p, i)) return;
        result.last_cycle = cycle;
        Sender& s = senders[p];
        if (s.patient && r.head + 1 == s.head) {
            s.refused = result.header.status == STATUS_NOT_READY && cycle < s.deadline;
            if (s.refused) return;
            s.patient = false;
        }
        result.done = ANSWERED;
        --unanswered;
        ++r.head;
    }

    void take_wake(unsigned p) {
        Receiver& r = receivers[p];
        ++r.beat;
        r.beats = RESPONSE_BEATS;
        if (!ends(p, -1)) return;
        ++wakes[p];
        senders[p].woken = true;
    }

    // Whether the beat just taken ends its message, which must be where rsp_last says.
    bool ends(unsigned p, int64_t i) {
        Receiver& r = receivers[p];
        const bool last = *pins[p].rsp_last, final = r.beat == r.beats;
        if (last != final) fail(final ? LONG : SHORT, p, i, r.beats, r.beat);
        if (final) r.beat = 0;
        return final && last;
    }

    // The header of a response is complete: check it and find room for what follows.
    bool begin_payload(unsigned p, int64_t i, Receiver& r, Result& result) {
        const uint16_t asked = batch[i].header.tag, answered = result.header.tag;
        if (answered != asked) {
            fail(WRONG_TAG, p, i, asked, answered);
            return false;
        }
        result.data_offset = data_bytes;
        result.data_bytes = carries_payload(result.header) ? result.header.length : 0;
        if (result.data_bytes > data_capacity - data_bytes) {
            fail(DATA_FULL, p, i);
            return false;
        }
        data_bytes += result.data_bytes;
        r.beats += (uint64_t{result.data_bytes} + BEAT_BYTES - 1) / BEAT_BYTES;
        return true;
    }

    void dump(uint64_t time) {
#ifdef WAVES
        if (waves_path.empty() || cycle < waves_first) return;
        if (cycle > waves_last) return close_waves();
        if (!tracer) {
            tracer = std::make_unique<VerilatedVcdC>();
            node->trace(tracer.get(), 99);
            tracer->open(waves_path.c_str());
        }
        tracer->dump(time);
#else
        (void)time;
#endif
    }

    VerilatedContext context;
    std::unique_ptr<Vnode> node;
    Pins pins[PORTS];
    Sender senders[PORTS];
    Receiver receivers[PORTS];
    BusMaster bus;
    uint32_t down = 0, was_down = 0;  // Ports held in reset, in this cycle and in the one before.
    bool skipped = false;
    bool changed = true;  // An input, since the model was last evaluated.
    uint64_t first_cycle = 0, count, unanswered;
    const Batch* batch;
    const uint8_t* payload;
    Result* results;
    uint8_t* data;
    uint64_t data_bytes, data_capacity;
    Options options{};
    Outcome outcome{};
    uint64_t trace_limit_bytes;
#ifdef WAVES
    std::unique_ptr<VerilatedVcdC> tracer;
    std::string waves_path;
    uint64_t waves_first = 0, waves_last = 0;
#endif
};

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API Harness* harness_open(uint64_t trace_limit) { return new Harness(trace_limit); }

API void harness_close(Harness* h) { delete h; }

API void harness_reset(Harness* h, uint32_t boot_epoch, uint32_t cycles) { h->reset(boot_epoch, cycles); }

API void harness_start(Harness* h, uint32_t count, const Batch* batch, const uint8_t* payload, Result* results,
                       uint8_t* data, uint64_t data_capacity, uint32_t accesses_count, Access* accesses,
                       const Options* options) {
    h->start(count, batch, payload, results, data, data_capacity, accesses_count, accesses, options);
}

API uint32_t harness_advance(Harness* h, uint64_t cycles) { return h->advance(cycles); }

API void harness_report(Harness* h, Outcome* outcome) { *outcome = h->report(); }

API uint64_t harness_cycle(Harness* h) { return h->cycle; }

API const char* harness_message(Harness* h) { return h->message.c_str(); }

API uint64_t harness_trace(Harness* h, const uint8_t** records) {
    *records = h->trace.data();
    return h->trace.size() / TRACE_BYTES;
}

API void harness_clear_trace(Harness* h) { h->trace.clear(); }

API void harness_counters(Harness* h, uint64_t* request_beats, uint64_t* response_beats, uint64_t* wakes) {
    std::memcpy(request_beats, h->request_beats, sizeof h->request_beats);
    std::memcpy(response_beats, h->response_beats, sizeof h->response_beats);
    std::memcpy(wakes, h->wakes, sizeof h->wakes);
}

API uint64_t harness_reset_requests(Harness* h) { return h->reset_requests; }

API bool harness_mutant(Harness* h, uint32_t number) { return h->mutant(number); }

API bool harness_waves(Harness* h, const char* path, uint64_t first_cycle, uint64_t last_cycle) {
    return h->waves(path, first_cycle, last_cycle);
}

API bool harness_coverage(Harness* h, const char* path) { return h->coverage(path); }
