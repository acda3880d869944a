// Runs batches of requests on one Verilated node.
//
// A cycle has two steps. With the clock low the inputs of the cycle are set and the model is evaluated, so that outputs
// which depend on them in the same cycle are right when they are sampled. Then the clock rises. When no input changes,
// everything is settled since the last rise, and the first step only has to make the model forget that the clock was
// high (ONE_CLOCK_EDGE; it speeds up quiet cycles only).

#include "node.h"

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "verilated.h"
#ifdef ONE_CLOCK_EDGE
#include "Vnode___024root.h"
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
    Request header;
};

struct Receiver {
    size_t head = 0;     // Position in the sender's queue of the request being answered.
    uint64_t beat = 0;   // Beats of the response that were taken.
    uint64_t beats = 0;  // All its beats, known with the header.
    bool held = false;   // A beat was seen and not taken; it must stay as it was.
    uint8_t held_last = 0;
    uint8_t held_data[BEAT_BYTES];
};

class Harness {
public:
    explicit Harness(uint64_t trace_limit) : trace_limit_bytes(trace_limit * TRACE_BYTES) {
#ifdef WAVES
        context.traceEverOn(true);
#endif
        node = std::make_unique<Vnode>(&context, "");
        bind_pins(*node, pins);
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
        node->reg_valid = 0;
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
    }

    void start(uint32_t n, const Batch* batch_, const uint8_t* payload_, Result* results_, uint8_t* data_,
               uint64_t data_capacity_, uint32_t registers_count_, RegisterWrite* registers_, const Options* options_) {
        drop_run();
        count = unanswered = n;
        batch = batch_;
        payload = payload_;
        results = results_;
        data = data_;
        data_capacity = data_capacity_;
        registers_count = registers_count_;
        registers = registers_;
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
        outcome.registers_written = registers_written;
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

    uint64_t cycle = 0;  // Since reset.
    std::vector<uint8_t> trace;
    uint64_t request_beats[PORTS] = {}, response_beats[PORTS] = {};
    std::string message;

private:
    void drop_run() {
        count = unanswered = data_bytes = data_capacity = registers_count = registers_written = 0;
        batch = nullptr;
        outcome = Outcome{};
        outcome.code = COMPLETE;
        for (Sender& s : senders) {
            s.queue.clear();
            s.head = s.beat = s.beats = 0;
            s.raised = false;
        }
        for (Receiver& r : receivers) {
            r.head = r.beat = r.beats = 0;
            r.held = false;
        }
        register_raised = false;
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
        offer_register();

        settle();
        dump(2 * cycle);

        for (unsigned p = 0; p < PORTS; ++p) {
            accept(p);
            receive(p);
        }
        if (register_raised && node->reg_ready) {
            registers[registers_written++].accepted_cycle = cycle;
            register_raised = false;
        }
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
        if (!unanswered && registers_written == registers_count && passed >= options.min_cycles)
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
        if (s.raised) return;
        const Pins& pin = pins[p];
        if (*pin.req_valid) {
            *pin.req_valid = 0;
            changed = true;
        }
        if (s.beats == 0 && !begin(s)) return;
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
        for (; s.head < s.queue.size(); ++s.head) {
            const uint32_t i = s.queue[s.head];
            const Batch& request = batch[i];
            if (cycle - first_cycle < request.earliest_cycle) return false;
            if (request.after >= 0 && results[request.after].done == NO) return false;
            const Result* source = request.handle_from >= 0 ? &results[request.handle_from] : nullptr;
            if (source && source->done == NO) return false;
            if (source && (source->done == SKIPPED || !carries_handle(source->header.status))) {
                results[i].done = SKIPPED;
                --unanswered;
                skipped = true;
                continue;
            }
            s.header = request.header;
            if (source) copy_handle(s.header, source->header);
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
        if (++s.beat == s.beats) {
            results[s.queue[s.head]].sent_cycle = cycle;
            ++s.head;
            s.beat = s.beats = 0;
        }
    }

    void receive(unsigned p) {
        const Pins& pin = pins[p];
        Receiver& r = receivers[p];
        if (!*pin.rsp_valid) {
            if (r.held) fail(WITHDRAWN, p, answering(p));
            return;
        }
        if (r.held && (*pin.rsp_last != r.held_last || std::memcmp(pin.rsp_data, r.held_data, BEAT_BYTES) != 0)) {
            fail(UNSTABLE, p, answering(p));
            return;
        }
        const int64_t i = answering(p);
        if (i < 0) return fail(UNASKED, p, -1);
        if (r.head == senders[p].head) return fail(EARLY, p, i);
        if (*pin.rsp_ready) {
            r.held = false;
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
        ++response_beats[p];
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
        if (r.beat < r.beats) {
            if (*pin.rsp_last) fail(SHORT, p, i, r.beats, r.beat);
            return;
        }
        if (!*pin.rsp_last) return fail(LONG, p, i, r.beats, r.beat);
        result.last_cycle = cycle;
        result.done = ANSWERED;
        --unanswered;
        ++r.head;
        r.beat = 0;
    }

    // The header of a response is complete: check it and find room for what follows.
    bool begin_payload(unsigned p, int64_t i, Receiver& r, Result& result) {
        const uint16_t asked = batch[i].header.tag, answered = result.header.tag;
        if (answered != asked) {
            fail(WRONG_TAG, p, i, asked, answered);
            return false;
        }
        result.data_offset = data_bytes;
        result.data_bytes = result.header.opcode == OPCODE_READ ? result.header.length : 0;
        if (result.data_bytes > data_capacity - data_bytes) {
            fail(DATA_FULL, p, i);
            return false;
        }
        data_bytes += result.data_bytes;
        r.beats += (uint64_t{result.data_bytes} + BEAT_BYTES - 1) / BEAT_BYTES;
        return true;
    }

    void offer_register() {
        if (register_raised) return;
        const RegisterWrite* next = registers_written < registers_count ? &registers[registers_written] : nullptr;
        register_raised = next && cycle - first_cycle >= next->cycle;
        changed |= register_raised || node->reg_valid;
        node->reg_valid = register_raised;
        if (register_raised) {
            node->reg_address = next->address;
            node->reg_data = next->data;
        }
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
    bool skipped = false, register_raised = false;
    bool changed = true;  // An input, since the model was last evaluated.
    uint64_t first_cycle = 0, count, unanswered;
    const Batch* batch;
    const uint8_t* payload;
    Result* results;
    uint8_t* data;
    uint64_t data_bytes, data_capacity, registers_count, registers_written;
    RegisterWrite* registers;
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
                       uint8_t* data, uint64_t data_capacity, uint32_t registers_count, RegisterWrite* registers,
                       const Options* options) {
    h->start(count, batch, payload, results, data, data_capacity, registers_count, registers, options);
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

API void harness_counters(Harness* h, uint64_t* request_beats, uint64_t* response_beats) {
    std::memcpy(request_beats, h->request_beats, sizeof h->request_beats);
    std::memcpy(response_beats, h->response_beats, sizeof h->response_beats);
}

API bool harness_waves(Harness* h, const char* path, uint64_t first_cycle, uint64_t last_cycle) {
    return h->waves(path, first_cycle, last_cycle);
}
