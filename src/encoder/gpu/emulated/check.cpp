// Holds every kernel against f64, at lengths around the edges of tiles and with what is no number in all rows that a text
// must not see. Prints a line a check; the exit code is 1 if one fails. `check short` takes few lengths: for sanitizers.

#include "../kernels.cu"

#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>

namespace {

int failures = 0;
std::mt19937 chance(7);

half random_half() { return __float2half_rn(std::normal_distribution<float>(0.0f, 1.0f)(chance)); }

std::vector<half> random_halves(size_t count) {
    std::vector<half> all(count);
    for (auto &x : all) x = random_half();
    return all;
}

double of(half x) { return double(__half2float(x)); }

const half NO_NUMBER = __float2half_rn(std::numeric_limits<float>::quiet_NaN());

// Rows that no text has: one tile, which attention may read.
constexpr int BEHIND = TILE;

struct Texts {
    std::vector<int> lengths;
    std::vector<unsigned> counts, ids, places, starts, tiles;

    Texts(std::vector<int> of_texts, int vocabulary) : lengths(std::move(of_texts)) {
        starts.push_back(0);
        for (size_t text = 0; text < lengths.size(); text++) {
            for (int place = 0; place < lengths[text]; place++) {
                // Equal texts have equal tokens, wherever they are.
                ids.push_back(unsigned(place * 7919 + lengths[text] * 104729) % vocabulary);
                places.push_back(place);
                if (place % TILE == 0) {
                    tiles.push_back(text);
                    tiles.push_back(place);
                }
            }
            starts.push_back(ids.size());
        }
        counts = {unsigned(ids.size()), unsigned(lengths.size()), unsigned(tiles.size() / 2)};
    }

    Slot slot() const { return Slot{counts.data(), ids.data(), places.data(), starts.data(), tiles.data()}; }
    int tokens() const { return int(ids.size()); }
    int texts() const { return int(lengths.size()); }
    unsigned blocks() const { return blocks_of(tokens()); }
    unsigned tile_blocks() const { return blocks_of(tiles.size() / 2); }
    // One more than needed, as a slot that is not full has.
    static unsigned blocks_of(size_t warps) { return unsigned((warps + WARPS - 1) / WARPS + 1); }

    std::vector<half> rows(int width) const {
        auto all = random_halves(size_t(tokens()) * width);
        all.resize(all.size() + size_t(BEHIND) * width, NO_NUMBER);
        return all;
    }
};

// Memory of a card begins at 256 bytes; that of a vector may begin anywhere.
struct Aligned {
    explicit Aligned(const std::vector<half> &from) : bytes(from.size() * sizeof(half) + 256) {
        auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
        start = reinterpret_cast<half *>((at + 255) / 256 * 256);
        std::memcpy(start, from.data(), from.size() * sizeof(half));
    }
    std::vector<char> bytes;
    half *start;
};

template <typename Kernel> void run(unsigned x, unsigned y, Kernel kernel) {
    emulated::launch(x, y, WARP * WARPS, kernel);
}

void report(const std::string &name, double worst, double allowed) {
    const bool good = worst <= allowed;
    std::printf("%s %s: %.2e of %.2e\n", good ? "ok" : "FAILED", name.c_str(), worst, allowed);
    failures += !good;
}

// The largest difference, relative to 1 or to what is larger. What is no number differs from everything.
struct Worst {
    double most = 0.0;
    void see(double got, double expected) {
        const double off = std::abs(got - expected) / std::max(1.0, std::abs(expected));
        most = off <= most ? most : off;
        if (off != off) most = std::numeric_limits<double>::infinity();
    }
};

constexpr double ROUNDED = 1.0 / 1024; // f16 has 11 bits

std::vector<double> normed(std::vector<double> row, int root, double epsilon, const half *gain, const half *bias) {
    double mean = 0, squares = 0;
    for (double x : row) mean += x / row.size();
    if (root) mean = 0;
    for (double x : row) squares += (x - mean) * (x - mean) / row.size();
    for (size_t at = 0; at < row.size(); at++) {
        row[at] = (row[at] - mean) / std::sqrt(squares + epsilon) * of(gain[at]);
        if (bias != nullptr) row[at] += of(bias[at]);
    }
    return row;
}

void check_embed_and_norm(const Texts &texts, int hidden) {
    const int vocabulary = 50;
    const auto words = random_halves(vocabulary * hidden), places = random_halves(600 * hidden);
    const auto gain = random_halves(hidden), bias = random_halves(hidden);
    for (int kind = 0; kind < 4; kind++) {
        // With places and a layer norm, with a norm of root mean squares, with a norm without bias, with nothing.
        const half *at_places = kind == 0 ? places.data() : nullptr;
        const half *by = kind == 3 ? nullptr : gain.data(), *more = kind == 0 ? bias.data() : nullptr;
        std::vector<half> out(texts.tokens() * hidden), again = texts.rows(hidden);
        const auto before = again;
        run(texts.blocks(), 1, [&] {
            embed_tokens(texts.slot(), words.data(), at_places, by, more, hidden, kind == 1, 1e-6f, out.data());
        });
        Worst worst, worst_norm;
        if (by != nullptr)
            run(texts.blocks(), 1,
                [&] { norm_rows(texts.slot(), again.data(), by, more, hidden, kind == 1, 1e-6f, again.data()); });
        for (int token = 0; token < texts.tokens(); token++) {
            std::vector<double> row(hidden), other(hidden);
            for (int at = 0; at < hidden; at++) {
                row[at] = of(words[texts.ids[token] * hidden + at]);
                if (at_places != nullptr) row[at] += of(places[texts.places[token] * hidden + at]);
                other[at] = of(before[token * hidden + at]);
            }
            if (by != nullptr) {
                row = normed(row, kind == 1, 1e-6, by, more);
                other = normed(other, kind == 1, 1e-6, by, more);
            }
            for (int at = 0; at < hidden; at++) {
                worst.see(of(out[token * hidden + at]), row[at]);
                worst_norm.see(of(again[token * hidden + at]), other[at]);
            }
        }
        report("embed, kind " + std::to_string(kind) + ", width " + std::to_string(hidden), worst.most, ROUNDED);
        report("norm, kind " + std::to_string(kind) + ", width " + std::to_string(hidden), worst_norm.most, ROUNDED);
    }
}

void check_turn(const Texts &texts, int size, int heads, int key_heads, bool gains, bool turns) {
    const int width = (heads + 2 * key_heads) * size, halves = size / 2;
    const auto before = texts.rows(width);
    auto rows = before;
    const auto of_queries = random_halves(size), of_keys = random_halves(size);
    std::vector<float> cosines, sines;
    for (int place = 0; place < 600; place++)
        for (int at = 0; at < halves; at++) {
            const double angle = place * std::pow(10000.0, -2.0 * at / size);
            cosines.push_back(std::cos(angle));
            sines.push_back(std::sin(angle));
        }
    run(Texts::blocks_of(size_t(texts.tokens()) * (heads + key_heads)), 1, [&] {
        turn_heads(texts.slot(), rows.data(), gains ? of_queries.data() : nullptr, gains ? of_keys.data() : nullptr, 1e-6f,
             turns ? cosines.data() : nullptr, sines.data(), heads, key_heads, size);
    });
    Worst worst;
    for (int token = 0; token < texts.tokens(); token++)
        for (int head = 0; head < heads + 2 * key_heads; head++) {
            const half *from = &before[size_t(token) * width + head * size];
            std::vector<double> x;
            for (int at = 0; at < size; at++) x.push_back(of(from[at]));
            if (gains && head < heads + key_heads)
                x = normed(x, 1, 1e-6, (head < heads ? of_queries : of_keys).data(), nullptr);
            for (int at = 0; turns && head < heads + key_heads && at < halves; at++) {
                const double angle = texts.places[token] * std::pow(10000.0, -2.0 * at / size);
                const double low = x[at], high = x[at + halves];
                x[at] = low * std::cos(angle) - high * std::sin(angle);
                x[at + halves] = high * std::cos(angle) + low * std::sin(angle);
            }
            for (int at = 0; at < size; at++) worst.see(of(rows[size_t(token) * width + head * size + at]), x[at]);
        }
    report("turn, size " + std::to_string(size) + (gains ? ", gains" : "") + (turns ? ", turns" : ""), worst.most,
           ROUNDED);
}

template <typename Attend>
void check_attend(const Texts &texts, int size, int heads, int key_heads, int mask, bool offsets, Attend attend,
                  int positions = 600) {
    const int width = (heads + 2 * key_heads) * size;
    const Aligned rows(texts.rows(width));
    std::vector<float> added(size_t(heads) * (2 * positions - 1));
    for (auto &x : added) x = std::normal_distribution<float>(0.0f, 1.0f)(chance);
    std::vector<half> out(size_t(texts.tokens()) * heads * size, NO_NUMBER);
    run(texts.tile_blocks(), heads, [&] {
        attend(texts.slot(), rows.start, offsets ? added.data() : nullptr, positions, heads, key_heads, mask, out.data());
    });
    Worst worst;
    for (int text = 0; text < texts.texts(); text++)
        for (int head = 0; head < heads; head++)
            for (int query = 0; query < texts.lengths[text]; query++) {
                const int tokens = texts.lengths[text];
                const size_t start = texts.starts[text];
                const half *of_query = rows.start + (start + query) * width + head * size;
                const half *keys = rows.start + start * width + (heads + head / (heads / key_heads)) * size;
                std::vector<double> scores(tokens), context(size);
                double sum = 0, largest = -1e300;
                const auto seen = [&](int key) {
                    return mask == -1 || (mask == -2 ? key <= query : std::abs(key - query) <= mask);
                };
                for (int key = 0; key < tokens; key++) {
                    for (int at = 0; at < size; at++)
                        scores[key] += of(of_query[at]) * of(keys[size_t(key) * width + at]) / std::sqrt(double(size));
                    if (offsets) scores[key] += added[size_t(head) * (2 * positions - 1) + positions - 1 + key - query];
                    if (seen(key)) largest = std::max(largest, scores[key]);
                }
                for (int key = 0; key < tokens; key++) {
                    if (!seen(key)) continue;
                    const double weight = std::exp(scores[key] - largest);
                    sum += weight;
                    for (int at = 0; at < size; at++)
                        context[at] += weight * of(keys[size_t(key) * width + key_heads * size + at]);
                }
                for (int at = 0; at < size; at++)
                    worst.see(of(out[(start + query) * heads * size + head * size + at]), context[at] / sum);
            }
    report("attend, size " + std::to_string(size) + ", mask " + std::to_string(mask) + ", " + std::to_string(heads) + "/" +
               std::to_string(key_heads) + " heads" + (offsets ? ", offsets" : ""),
           worst.most, 2 * ROUNDED);
}

void check_activate(const Texts &texts, int width) {
    for (int activation = NONE; activation <= TANH; activation++)
        for (int gated = 0; gated < 2; gated++) {
            const auto in = texts.rows(width * (1 + gated));
            std::vector<half> out(size_t(texts.tokens()) * width);
            run(texts.blocks(), 1, [&] { activate_rows(texts.slot(), in.data(), width, activation, gated, out.data()); });
            Worst worst;
            for (int token = 0; token < texts.tokens(); token++)
                for (int at = 0; at < width; at++) {
                    const half *from = &in[size_t(token) * width * (1 + gated)];
                    const double x = of(from[at]);
                    const double all[] = {x,
                                          x / 2 * (1 + std::erf(x / std::sqrt(2.0))),
                                          x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))),
                                          std::max(0.0, x),
                                          x / (1 + std::exp(-x)),
                                          std::tanh(x)};
                    const double by = gated ? of(from[width + at]) : 1.0;
                    worst.see(of(out[size_t(token) * width + at]), all[activation] * by);
                }
            report("activate " + std::to_string(activation) + (gated ? ", gated" : ""), worst.most, ROUNDED);
        }
}

void check_pool(const Texts &texts, int hidden) {
    for (int pooling = MEAN; pooling <= LAST_TOKEN; pooling++)
        for (int from = 0; from < 3; from += 2)
            for (int normalise = 0; normalise < 2; normalise++) {
                const int keep = normalise ? hidden : hidden / 2;
                const auto rows = texts.rows(hidden);
                std::vector<float> out(size_t(texts.texts()) * keep);
                run(unsigned(texts.texts() + 1), 1, [&] {
                    pool_texts(texts.slot(), rows.data(), hidden, pooling, from, keep, normalise, out.data(), nullptr);
                });
                std::vector<half> narrow(size_t(texts.texts()) * keep);
                run(unsigned(texts.texts() + 1), 1, [&] {
                    pool_texts(texts.slot(), rows.data(), hidden, pooling, from, keep, 0, nullptr, narrow.data());
                });
                Worst worst, worst_narrow;
                for (int text = 0; text < texts.texts(); text++) {
                    const int tokens = texts.lengths[text], before = tokens > from ? from : 0, count = tokens - before;
                    std::vector<double> pooled(keep);
                    double length = 0;
                    for (int at = 0; at < keep; at++) {
                        const auto x = [&](int token) { return of(rows[(texts.starts[text] + token) * hidden + at]); };
                        double sum = 0, weighted = 0, weights = 0, most = -1e300;
                        for (int token = before; token < tokens; token++) {
                            sum += x(token);
                            weighted += (token + 1) * x(token);
                            weights += token + 1;
                            most = std::max(most, x(token));
                        }
                        const double all[] = {sum / count,       x(before),          most, sum / std::sqrt(double(count)),
                                              weighted / weights, x(tokens - 1)};
                        pooled[at] = all[pooling];
                        length += pooled[at] * pooled[at];
                    }
                    for (int at = 0; at < keep; at++) {
                        worst.see(out[size_t(text) * keep + at], pooled[at] / (normalise ? std::sqrt(length) : 1.0));
                        worst_narrow.see(of(narrow[size_t(text) * keep + at]), pooled[at]);
                    }
                }
                report("pool " + std::to_string(pooling) + " at f16", worst_narrow.most, ROUNDED);
                report("pool " + std::to_string(pooling) + " from " + std::to_string(from) + (normalise ? ", length 1" : ""),
                       worst.most, 1e-5);
            }
}

// A key that is no number makes none of every query that sees it, and of no other.
void check_no_numbers() {
    const Texts texts({20, 20}, 50);
    auto rows = texts.rows(3 * 32);
    rows[size_t(25) * 96 + 32 + 3] = NO_NUMBER;
    const Aligned aligned(rows);
    std::vector<half> out(size_t(texts.tokens()) * 32);
    run(texts.tile_blocks(), 1,
        [&] { attend_32(texts.slot(), aligned.start, nullptr, 600, 1, 1, 4, out.data()); });
    int wrong = 0;
    for (int query = 0; query < 40; query++) {
        const bool sees_it = query >= 20 && std::abs(query - 25) <= 4;
        for (int at = 0; at < 32; at++) {
            const double x = of(out[query * 32 + at]);
            wrong += sees_it != (x != x);
        }
    }
    report("scores that are no numbers", wrong, 0);
}

// A text through all kernels, alone and between others whose rows are no numbers: not a bit may differ.
template <typename Attend> void check_neighbours(int length, int size, int mask, Attend attend) {
    const int heads = 2, hidden = heads * size, width = 3 * hidden, vocabulary = 50;
    auto words = random_halves(size_t(vocabulary) * hidden);
    const auto gain = random_halves(hidden);
    std::vector<float> cosines(600 * size / 2, 0.6f), sines(600 * size / 2, 0.8f);
    const auto vector_of = [&](const Texts &texts, int which) {
        std::vector<half> x(size_t(texts.tokens() + BEHIND) * hidden, NO_NUMBER);
        run(texts.blocks(), 1,
            [&] { embed_tokens(texts.slot(), words.data(), nullptr, gain.data(), nullptr, hidden, 0, 1e-6f, x.data()); });
        // A product of whole numbers: a row becomes three, whatever is in other rows.
        std::vector<half> wide(size_t(texts.tokens() + BEHIND) * width, NO_NUMBER);
        for (int token = 0; token < texts.tokens(); token++)
            for (int at = 0; at < width; at++) wide[size_t(token) * width + at] = x[size_t(token) * hidden + at % hidden];
        for (int text = 0; text < texts.texts(); text++)
            if (text != which)
                std::fill(wide.begin() + size_t(texts.starts[text]) * width,
                          wide.begin() + size_t(texts.starts[text + 1]) * width, NO_NUMBER);
        const Aligned rows(wide);
        run(Texts::blocks_of(size_t(texts.tokens()) * 2 * heads), 1, [&] {
            turn_heads(texts.slot(), rows.start, nullptr, nullptr, 1e-6f, cosines.data(), sines.data(), heads, heads, size);
        });
        run(texts.tile_blocks(), heads,
            [&] { attend(texts.slot(), rows.start, nullptr, 600, heads, heads, mask, x.data()); });
        run(texts.blocks(), 1, [&] { activate_rows(texts.slot(), x.data(), hidden, GELU, 0, x.data()); });
        run(texts.blocks(), 1,
            [&] { norm_rows(texts.slot(), x.data(), gain.data(), nullptr, hidden, 0, 1e-6f, x.data()); });
        std::vector<float> out(size_t(texts.texts()) * hidden);
        run(unsigned(texts.texts()), 1,
            [&] { pool_texts(texts.slot(), x.data(), hidden, MEAN, 0, hidden, 1, out.data(), nullptr); });
        return std::vector<float>(out.begin() + which * hidden, out.begin() + (which + 1) * hidden);
    };
    const auto alone = vector_of(Texts({length}, vocabulary), 0);
    const auto among = vector_of(Texts({3, 17, length, 40, 1}, vocabulary), 2);
    const auto last = vector_of(Texts({5, length}, vocabulary), 1);
    const size_t bytes = alone.size() * sizeof(float);
    const bool equal = std::memcmp(alone.data(), among.data(), bytes) == 0 &&
                       std::memcmp(alone.data(), last.data(), bytes) == 0 && alone[0] == alone[0];
    report("neighbours of " + std::to_string(length) + " tokens, size " + std::to_string(size), equal ? 0 : 1, 0);
}

} // namespace

int main(int count, char **arguments) {
    const bool brief = count > 1 && std::string(arguments[1]) == "short";
    const std::vector<int> lengths = brief ? std::vector<int>{1, 17, 33} : std::vector<int>{1, 15, 16, 17, 63, 64, 65, 2, 130};
    const Texts texts(lengths, 50), one({1}, 50), longest({brief ? 65 : 512, brief ? 3 : 511}, 50);
    for (const Texts *of_texts : {&texts, &one}) {
        check_embed_and_norm(*of_texts, of_texts == &one ? 32 : 384);
        for (int size : {32, 64, 128}) {
            check_turn(*of_texts, size, 4, 2, false, true);
            check_turn(*of_texts, size, 2, 2, true, true);
            check_turn(*of_texts, size, 2, 1, true, false);
        }
        check_activate(*of_texts, 64);
        check_pool(*of_texts, 384);
    }
    check_attend(longest, 32, 1, 1, -1, false, attend_32);
    // As many places as the longest text has tokens.
    check_attend(Texts({17, 3, 17}, 50), 32, 2, 2, -1, true, attend_32, 17);
    check_no_numbers();
    check_attend(longest, 64, 1, 1, 64, true, attend_64);
    for (const Texts *of_texts : {&texts, &one}) {
        for (int mask : {-1, -2, 5, 64}) check_attend(*of_texts, 32, 2, 2, mask, false, attend_32);
        check_attend(*of_texts, 64, 2, 1, -1, true, attend_64);
        check_attend(*of_texts, 64, 2, 2, 0, false, attend_64);
        check_attend(*of_texts, 128, 2, 1, -2, false, attend_128);
    }
    for (int length : brief ? std::vector<int>{17} : std::vector<int>{1, 16, 17, 130}) {
        check_neighbours(length, 32, -1, attend_32);
        check_neighbours(length, 64, 20, attend_64);
        check_neighbours(length, 128, -2, attend_128);
    }
    std::printf("%d checks failed\n", failures);
    return failures > 0;
}
