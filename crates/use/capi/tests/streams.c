/* Streams over a detector of speech: what they answer is what requests answer that pass the state on by hand. */
#include "check.h"

#define CHUNK 576
#define STATE (2 * 128)
#define MESSAGES 6
#define STREAMS 3

static const int64_t sound_shape[] = {1, CHUNK};
static const int64_t state_shape[] = {2, 1, 128};
static int64_t rate = 16000;
static float want[STREAMS][MESSAGES];

/* Message number `i` of stream `s`. */
static void sound(int s, int i, float *to) {
    for (int j = 0; j < CHUNK; j++) to[j] = sinf((float)((s + 1) * (i * CHUNK + j)) * 0.05f) * 0.4f;
}

static void inputs_of(const float *samples, shopfloor_input *in) {
    in[0] = (shopfloor_input){"input", SHOPFLOOR_FLOAT, 2, sound_shape, samples, CHUNK * sizeof(float)};
    in[1] = (shopfloor_input){"sr", SHOPFLOOR_INT64, 0, NULL, &rate, sizeof rate};
}

static float first(shopfloor_outputs *out) {
    shopfloor_output o;
    CHECK(shopfloor_outputs_count(out) == 1);
    OK(shopfloor_outputs_find(out, "output", &o));
    float f = *(const float *)o.data;
    shopfloor_outputs_free(out);
    return f;
}

static int near(float a, float b) { return fabsf(a - b) < 1e-5f; }

/* What is to come out, by requests. */
static void by_requests(const shopfloor_session *session) {
    for (int s = 0; s < STREAMS; s++) {
        float state[STATE] = {0};
        for (int i = 0; i < MESSAGES; i++) {
            float samples[CHUNK];
            sound(s, i, samples);
            shopfloor_input in[3];
            inputs_of(samples, in);
            in[2] = (shopfloor_input){"state", SHOPFLOOR_FLOAT, 3, state_shape, state, sizeof state};
            shopfloor_outputs *out;
            OK(shopfloor_run(session, in, 3, NULL, &out));
            shopfloor_output o;
            OK(shopfloor_outputs_find(out, "output", &o));
            want[s][i] = *(const float *)o.data;
            OK(shopfloor_outputs_find(out, "stateN", &o));
            CHECK(o.bytes == sizeof state);
            memcpy(state, o.data, sizeof state);
            shopfloor_outputs_free(out);
        }
    }
}

static shopfloor_stream *opened(const shopfloor_session *session, const shopfloor_streaming *how) {
    shopfloor_range one = {"state.d1", 1, 1};
    shopfloor_stream *stream;
    OK(shopfloor_stream_open(session, &one, 1, how, &stream));
    return stream;
}

/* Sends a message whose memory is gone before anybody looks at it. */
static void send(const shopfloor_stream *stream, int s, int i, const shopfloor_cancel *cancel) {
    float *samples = malloc(CHUNK * sizeof(float));
    CHECK(samples);
    sound(s, i, samples);
    shopfloor_input in[2];
    inputs_of(samples, in);
    OK(shopfloor_stream_send(stream, in, 2, cancel));
    memset(samples, 255, CHUNK * sizeof(float));
    free(samples);
}

static void in_order(const shopfloor_session *session) {
    shopfloor_stream *all[STREAMS];
    for (int s = 0; s < STREAMS; s++) all[s] = opened(session, NULL);
    CHECK(!strcmp(shopfloor_stream_state(all[0], 0), "state") && !shopfloor_stream_state(all[0], 1));
    for (int i = 0; i < MESSAGES; i += 2) {
        for (int s = 0; s < STREAMS; s++) {
            send(all[s], s, i, NULL);
            send(all[s], s, i + 1, NULL);
            CHECK(shopfloor_stream_pending(all[s]) == 2);
        }
        for (int s = 0; s < STREAMS; s++)
            for (int k = i; k < i + 2; k++) {
                shopfloor_outputs *out;
                OK(shopfloor_stream_receive(all[s], &out));
                CHECK(near(first(out), want[s][k]));
            }
    }
    CHECK(shopfloor_stream_pending(all[0]) == 0 && shopfloor_stream_ready(all[0]) == 0);
    CHECK(shopfloor_stream_state_bytes(all[0]) == STATE * sizeof(float));
    for (int s = 0; s < STREAMS; s++) shopfloor_stream_free(all[s]);
}

/* Somebody who asks now and then, and state that a stream goes on from. */
static void asked_and_started(const shopfloor_session *session) {
    shopfloor_streaming how = {2, -1, NULL};
    shopfloor_stream *stream = opened(session, &how);
    send(stream, 0, 0, NULL);
    shopfloor_outputs *out = NULL;
    while (!out) OK(shopfloor_stream_try_receive(stream, &out));
    CHECK(near(first(out), want[0][0]));
    FAILS(shopfloor_stream_try_receive(stream, &out), SHOPFLOOR_USAGE, "nothing was sent");
    CHECK(!out);
    send(stream, 0, 1, NULL);
    send(stream, 0, 2, NULL);
    float samples[CHUNK];
    sound(0, 3, samples);
    shopfloor_input in[2];
    inputs_of(samples, in);
    FAILS(shopfloor_stream_send(stream, in, 2, NULL), SHOPFLOOR_REFUSED, "2 messages");
    FAILS(shopfloor_stream_run(stream, in, 2, &out), SHOPFLOOR_USAGE, "pending");
    CHECK(!out);
    for (int i = 1; i < 3; i++) {
        OK(shopfloor_stream_receive(stream, &out));
        CHECK(near(first(out), want[0][i]));
    }
    /* From the beginning, on zeros of the caller's. */
    float *zeros = calloc(STATE, sizeof(float));
    shopfloor_input state = {"state", SHOPFLOOR_FLOAT, 3, state_shape, zeros, STATE * sizeof(float)};
    OK(shopfloor_stream_start(stream, &state, 1));
    memset(zeros, 255, STATE * sizeof(float));
    free(zeros);
    for (int i = 0; i < 3; i++) {
        sound(0, i, samples);
        OK(shopfloor_stream_run(stream, in, 2, &out));
        CHECK(near(first(out), want[0][i]));
    }
    state.name = "sr";
    state.data = samples;
    FAILS(shopfloor_stream_start(stream, &state, 1), SHOPFLOOR_USAGE, "'sr'");
    shopfloor_stream_free(stream);
}

static void given_up_and_wrong(const shopfloor_session *session) {
    shopfloor_streaming how = {0, -1, NULL};
    shopfloor_stream *stream = opened(session, &how);
    shopfloor_cancel *cancel = shopfloor_cancel_new();
    shopfloor_outputs *out;
    send(stream, 0, 0, NULL);
    send(stream, 9, 9, cancel);
    send(stream, 0, 1, NULL);
    shopfloor_cancel_now(cancel);
    OK(shopfloor_stream_receive(stream, &out));
    CHECK(near(first(out), want[0][0]));
    FAILS(shopfloor_stream_receive(stream, &out), SHOPFLOOR_CANCELLED, "cancelled");
    CHECK(!out);
    OK(shopfloor_stream_receive(stream, &out));
    CHECK(near(first(out), want[0][1]));
    shopfloor_cancel_free(cancel);

    float samples[CHUNK] = {0};
    shopfloor_input in[3];
    inputs_of(samples, in);
    in[2] = (shopfloor_input){"state", SHOPFLOOR_FLOAT, 3, state_shape, samples, STATE * sizeof(float)};
    FAILS(shopfloor_stream_send(stream, in, 3, NULL), SHOPFLOOR_USAGE, "'state' is state");
    FAILS(shopfloor_stream_send(stream, in, 1, NULL), SHOPFLOOR_INPUT, "'sr'");
    FAILS(shopfloor_stream_send(stream, in, 4, NULL), SHOPFLOOR_USAGE, "4 inputs");
    FAILS(shopfloor_stream_send(stream, NULL, 2, NULL), SHOPFLOOR_USAGE, "inputs is NULL");
    FAILS(shopfloor_stream_send(NULL, in, 2, NULL), SHOPFLOOR_USAGE, "stream is NULL");
    FAILS(shopfloor_stream_run(stream, in, 2, NULL), SHOPFLOOR_USAGE, "outputs is NULL");
    FAILS(shopfloor_stream_run(NULL, in, 2, &out), SHOPFLOOR_USAGE, "stream is NULL");
    FAILS(shopfloor_stream_receive(stream, NULL), SHOPFLOOR_USAGE, "outputs is NULL");
    FAILS(shopfloor_stream_receive(NULL, &out), SHOPFLOOR_USAGE, "stream is NULL");
    FAILS(shopfloor_stream_try_receive(NULL, &out), SHOPFLOOR_USAGE, "stream is NULL");
    FAILS(shopfloor_stream_start(NULL, in, 1), SHOPFLOOR_USAGE, "stream is NULL");
    FAILS(shopfloor_stream_start(stream, NULL, 1), SHOPFLOOR_USAGE, "inputs is NULL");
    in[0].name = "sounds";
    FAILS(shopfloor_stream_send(stream, in, 2, NULL), SHOPFLOOR_INPUT, "'sounds'");
    /* What is wrong with sizes is the message's answer, and the next one goes on. */
    const int64_t three[] = {1, 1, CHUNK};
    inputs_of(samples, in);
    in[0].rank = 3, in[0].shape = three;
    OK(shopfloor_stream_send(stream, in, 2, NULL));
    FAILS(shopfloor_stream_receive(stream, &out), SHOPFLOOR_INPUT, "shape");
    sound(0, 2, samples);
    inputs_of(samples, in);
    OK(shopfloor_stream_run(stream, in, 2, &out));
    CHECK(near(first(out), want[0][2]));
    shopfloor_stream_free(stream);
}

static void wrong_openings(const shopfloor_session *session) {
    shopfloor_stream *stream = (shopfloor_stream *)&rate;
    shopfloor_range r = {"nobody", 1, 4};
    FAILS(shopfloor_stream_open(session, &r, 1, NULL, &stream), SHOPFLOOR_USAGE, "'nobody'");
    CHECK(!stream);
    r.name = NULL;
    FAILS(shopfloor_stream_open(session, &r, 1, NULL, &stream), SHOPFLOOR_USAGE, "NULL");
    r = (shopfloor_range){"state.d1", 3, 2};
    FAILS(shopfloor_stream_open(session, &r, 1, NULL, &stream), SHOPFLOOR_USAGE, "'state.d1'");
    r.least = 1, r.most = 1;
    FAILS(shopfloor_stream_open(session, &r, 99, NULL, &stream), SHOPFLOOR_USAGE, "99 ranges");
    FAILS(shopfloor_stream_open(session, NULL, 1, NULL, &stream), SHOPFLOOR_USAGE, "ranges is NULL");
    FAILS(shopfloor_stream_open(NULL, &r, 1, NULL, &stream), SHOPFLOOR_USAGE, "session is NULL");
    FAILS(shopfloor_stream_open(session, &r, 1, NULL, NULL), SHOPFLOOR_USAGE, "stream is NULL");
    shopfloor_streaming how = {0, NAN, NULL};
    FAILS(shopfloor_stream_open(session, &r, 1, &how, &stream), SHOPFLOOR_USAGE, "seconds");
    how.linger_s = 0, how.mask = "input";
    FAILS(shopfloor_stream_open(session, &r, 1, &how, &stream), SHOPFLOOR_USAGE, "cannot be joined");
    how.mask = "nobody";
    FAILS(shopfloor_stream_open(session, &r, 1, &how, &stream), SHOPFLOOR_USAGE, "'nobody'");
    CHECK(!stream);
}

static shopfloor_stream *shared;

/* Messages of one stream from several threads: all are answered, in whatever order. */
static void *sender(void *context) {
    (void)context;
    for (int i = 0; i < 20; i++) send(shared, 0, i, NULL);
    return NULL;
}

static void *own(void *session) {
    shopfloor_stream *stream = opened(session, NULL);
    for (int i = 0; i < MESSAGES; i++) {
        float samples[CHUNK];
        sound(1, i, samples);
        shopfloor_input in[2];
        inputs_of(samples, in);
        shopfloor_outputs *out;
        OK(shopfloor_stream_run(stream, in, 2, &out));
        CHECK(near(first(out), want[1][i]));
    }
    shopfloor_stream_free(stream);
    return NULL;
}

static void from_threads(shopfloor_session *session) {
    pthread_t threads[4];
    shared = opened(session, NULL);
    for (int t = 0; t < 2; t++) CHECK(!pthread_create(&threads[t], NULL, sender, NULL));
    for (int t = 2; t < 4; t++) CHECK(!pthread_create(&threads[t], NULL, own, session));
    int received = 0;
    while (received < 40) {
        shopfloor_outputs *out;
        if (!shopfloor_stream_pending(shared)) continue;
        OK(shopfloor_stream_receive(shared, &out));
        float p = first(out);
        CHECK(p >= 0 && p <= 1);
        received++;
    }
    for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
    CHECK(shopfloor_stream_pending(shared) == 0);
    shopfloor_stream_free(shared);
}

/* State that is named, and state that cannot be. */
static void declared(const char *path) {
    shopfloor_options *o = shopfloor_options_new();
    FAILS(shopfloor_options_set_state(o, NULL, "stateN"), SHOPFLOOR_USAGE, "input is NULL");
    FAILS(shopfloor_options_set_state(NULL, "state", "stateN"), SHOPFLOOR_USAGE, "options is NULL");
    FAILS(shopfloor_options_find_states(NULL), SHOPFLOOR_USAGE, "options is NULL");
    OK(shopfloor_options_set_state(o, "state", "stateN"));
    shopfloor_session *session;
    OK(shopfloor_session_open_file(path, o, &session));
    shopfloor_stream *stream = opened(session, NULL);
    /* A stream keeps what it needs of its session. */
    shopfloor_session_free(session);
    send(stream, 2, 0, NULL);
    shopfloor_outputs *out;
    OK(shopfloor_stream_receive(stream, &out));
    CHECK(near(first(out), want[2][0]));
    /* Freed with a message that nobody received. */
    send(stream, 2, 1, NULL);
    shopfloor_stream_free(stream);
    OK(shopfloor_options_set_state(o, "state", "nobody"));
    shopfloor_error *e = shopfloor_session_open_file(path, o, &session);
    CHECK(e && !session && strstr(shopfloor_error_message(e), "nobody"));
    shopfloor_error_free(e);
    shopfloor_options_free(o);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    shopfloor_options *o = shopfloor_options_new();
    OK(shopfloor_options_set_threads(o, 2));
    OK(shopfloor_options_find_states(o));
    shopfloor_session *session;
    OK(shopfloor_session_open_file(argv[1], o, &session));
    shopfloor_options_free(o);
    by_requests(session);
    in_order(session);
    asked_and_started(session);
    given_up_and_wrong(session);
    wrong_openings(session);
    from_threads(session);
    shopfloor_session_free(session);
    declared(argv[1]);
    shopfloor_stream_free(NULL);
    CHECK(!shopfloor_stream_pending(NULL) && !shopfloor_stream_ready(NULL));
    CHECK(!shopfloor_stream_state(NULL, 0) && !shopfloor_stream_state_bytes(NULL));
    puts("all is well");
    return 0;
}
