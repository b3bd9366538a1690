/* What the header says, asserted; and attempts to break it. */
#include "check.h"

static float pixels[3 * 64];
static const int64_t one[] = {1, 1, 8, 8};

static shopfloor_input image(const int64_t *shape, size_t rank, size_t floats) {
    shopfloor_input in = {"image", SHOPFLOOR_FLOAT, rank, shape, pixels, floats * sizeof(float)};
    return in;
}

static void *bytes_of(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    CHECK(f);
    CHECK(!fseek(f, 0, SEEK_END));
    *n = (size_t)ftell(f);
    rewind(f);
    void *all = malloc(*n);
    CHECK(all && fread(all, 1, *n, f) == *n);
    fclose(f);
    return all;
}

static int released;
static void release(void *context) {
    free(context);
    released++;
}

static void opening(const char *path) {
    shopfloor_session *s = (shopfloor_session *)&released;
    FAILS(shopfloor_session_open_file("/no/such/model.onnx", NULL, &s), SHOPFLOOR_IO, "/no/such");
    CHECK(!s);
    FAILS(shopfloor_session_open_file(NULL, NULL, &s), SHOPFLOOR_USAGE, "path is NULL");
    FAILS(shopfloor_session_open_file(path, NULL, NULL), SHOPFLOOR_USAGE, "session is NULL");
    FAILS(shopfloor_session_open_file("\xff\xfe", NULL, &s), SHOPFLOOR_USAGE, "UTF-8");
    FAILS(shopfloor_session_open_memory("nonsense", 8, NULL, &s), SHOPFLOOR_DAMAGED, "damaged");
    FAILS(shopfloor_session_open_memory(NULL, 8, NULL, &s), SHOPFLOOR_USAGE, "model is NULL");
    FAILS(shopfloor_session_open_memory(path, SIZE_MAX, NULL, &s), SHOPFLOOR_USAGE, "members");

    shopfloor_options *o = shopfloor_options_new();
    FAILS(shopfloor_options_set_threads(o, 0), SHOPFLOOR_USAGE, "threads");
    FAILS(shopfloor_options_set_threads(NULL, 1), SHOPFLOOR_USAGE, "options is NULL");
    FAILS(shopfloor_options_set_device(o, "toaster"), SHOPFLOOR_USAGE, "toaster");
    FAILS(shopfloor_options_set_precision(o, "f12"), SHOPFLOOR_USAGE, "f12");
    FAILS(shopfloor_options_set_dim(o, "batch", 5, 2), SHOPFLOOR_USAGE, "batch");
    FAILS(shopfloor_options_set_dim(o, "batch", -1, 2), SHOPFLOOR_USAGE, "batch");
    FAILS(shopfloor_options_set_queue(o, 0, 2), SHOPFLOOR_USAGE, "request");
    OK(shopfloor_options_set_memory(o, 1000));
    OK(shopfloor_session_open_file(path, o, &s));
    shopfloor_input in = image(one, 4, 64);
    shopfloor_outputs *out = NULL;
    shopfloor_error *e = shopfloor_run(s, &in, 1, NULL, &out);
    CHECK(e && !out && strstr(shopfloor_error_message(e), "memory"));
    shopfloor_error_free(e);
    shopfloor_session_free(s);
    shopfloor_options_free(o);

    o = shopfloor_options_new();
    OK(shopfloor_options_set_dim(o, "nobody", 1, 2));
    FAILS(shopfloor_session_open_file(path, o, &s), SHOPFLOOR_USAGE, "nobody");
    shopfloor_options_free(o);

    /* Bytes that are copied, and bytes that are shared. */
    size_t n;
    void *all = bytes_of(path, &n);
    OK(shopfloor_session_open_memory(all, n, NULL, &s));
    memset(all, 0, n);
    free(all);
    OK(shopfloor_run(s, &in, 1, NULL, &out));
    shopfloor_outputs_free(out);
    shopfloor_session_free(s);
    all = bytes_of(path, &n);
    OK(shopfloor_session_open_shared(all, n, release, all, NULL, &s));
    OK(shopfloor_run(s, &in, 1, NULL, &out));
    shopfloor_outputs_free(out);
    CHECK(released == 0);
    shopfloor_session_free(s);
    CHECK(released == 1);
    /* Released where it fails too. */
    all = malloc(100);
    memset(all, 7, 100);
    FAILS(shopfloor_session_open_shared(all, 100, release, all, NULL, &s), SHOPFLOOR_DAMAGED, "damaged");
    CHECK(released == 2);
    FAILS(shopfloor_session_open_shared(NULL, 100, release, malloc(1), NULL, &s), SHOPFLOOR_USAGE, "NULL");
    CHECK(released == 3);
}

static void described(const shopfloor_session *s) {
    CHECK(shopfloor_session_input_count(s) == 1 && shopfloor_session_output_count(s) == 1);
    CHECK(shopfloor_session_input_count(NULL) == 0 && shopfloor_session_output_count(NULL) == 0);
    shopfloor_port p;
    OK(shopfloor_session_input(s, 0, &p));
    CHECK(!strcmp(p.name, "image") && !strcmp(p.kind, "tensor(float)"));
    CHECK(p.dtype == SHOPFLOOR_FLOAT && p.rank == 4);
    CHECK(p.dims[0].size == -1 && !strcmp(p.dims[0].symbol, "batch"));
    CHECK(p.dims[1].size == 1 && !p.dims[1].symbol && p.dims[3].size == 8);
    OK(shopfloor_session_output(s, 0, &p));
    CHECK(!strcmp(p.name, "probabilities") && p.rank == 2 && p.dims[1].size == 10);
    FAILS(shopfloor_session_input(s, 1, &p), SHOPFLOOR_USAGE, "no input 1");
    FAILS(shopfloor_session_output(s, SIZE_MAX, &p), SHOPFLOOR_USAGE, "no output");
    FAILS(shopfloor_session_input(NULL, 0, &p), SHOPFLOOR_USAGE, "session is NULL");
    FAILS(shopfloor_session_input(s, 0, NULL), SHOPFLOOR_USAGE, "input is NULL");
}

static void running(const shopfloor_session *s) {
    const int64_t three[] = {3, 1, 8, 8};
    shopfloor_input in = image(three, 4, 3 * 64);
    shopfloor_outputs *out;
    OK(shopfloor_run(s, &in, 1, NULL, &out));
    CHECK(shopfloor_outputs_count(out) == 1 && shopfloor_outputs_count(NULL) == 0);
    shopfloor_output p, q;
    OK(shopfloor_outputs_get(out, 0, &p));
    OK(shopfloor_outputs_find(out, "probabilities", &q));
    CHECK(p.data == q.data && p.dtype == SHOPFLOOR_FLOAT && p.rank == 2);
    CHECK(p.shape[0] == 3 && p.shape[1] == 10 && p.bytes == 3 * 10 * sizeof(float));
    const float *f = p.data;
    for (int r = 0; r < 3; r++) {
        float sum = 0;
        for (int c = 0; c < 10; c++) sum += f[10 * r + c];
        CHECK(sum > 0.999f && sum < 1.001f);
    }
    FAILS(shopfloor_outputs_get(out, 1, &p), SHOPFLOOR_USAGE, "no output 1");
    FAILS(shopfloor_outputs_find(out, "x", &p), SHOPFLOOR_USAGE, "'x'");
    FAILS(shopfloor_outputs_find(out, NULL, &p), SHOPFLOOR_USAGE, "name is NULL");
    const char *t;
    size_t n;
    FAILS(shopfloor_outputs_text(out, 0, 0, &t, &n), SHOPFLOOR_USAGE, "f32");

    /* The same into memory of the caller's. */
    float own[31] = {0};
    int64_t dims[2] = {0};
    shopfloor_buffer b = {"probabilities", SHOPFLOOR_FLOAT, own, sizeof own, 0, dims, 2, 0};
    OK(shopfloor_run_into(s, &in, 1, NULL, &b, 1));
    CHECK(b.bytes == 120 && b.rank == 2 && dims[0] == 3 && dims[1] == 10 && own[30] == 0);
    CHECK(!memcmp(own, f, 120));
    b.capacity = 119;
    memset(own, 1, sizeof own);
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, 1), SHOPFLOOR_USAGE, "120 B");
    CHECK(b.bytes == 120 && ((unsigned char *)own)[0] == 1);
    b.capacity = sizeof own, b.most_dims = 1;
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, 1), SHOPFLOOR_USAGE, "2 dimensions");
    b.most_dims = 2, b.shape = NULL;
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, 1), SHOPFLOOR_USAGE, "2 dimensions");
    b.shape = dims, b.data = NULL;
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, 1), SHOPFLOOR_USAGE, "0 B");
    b.data = own, b.dtype = SHOPFLOOR_DOUBLE;
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, 1), SHOPFLOOR_USAGE, "f32");
    b.dtype = 4711;
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, 1), SHOPFLOOR_USAGE, "4711");
    b.dtype = SHOPFLOOR_FLOAT, b.name = "p";
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, 1), SHOPFLOOR_USAGE, "'p'");
    b.name = NULL;
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, 1), SHOPFLOOR_USAGE, "NULL");
    FAILS(shopfloor_run_into(s, &in, 1, NULL, &b, SIZE_MAX), SHOPFLOOR_USAGE, "outputs");
    FAILS(shopfloor_run_into(s, &in, 1, NULL, NULL, 1), SHOPFLOOR_USAGE, "buffers is NULL");
    OK(shopfloor_run_into(s, &in, 1, NULL, NULL, 0));
    shopfloor_outputs_free(out);
}

static void wrong_inputs(const shopfloor_session *s) {
    shopfloor_outputs *out;
    shopfloor_input in = image(one, 4, 64);
    FAILS(shopfloor_run(NULL, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "session is NULL");
    FAILS(shopfloor_run(s, NULL, 1, NULL, &out), SHOPFLOOR_USAGE, "inputs is NULL");
    FAILS(shopfloor_run(s, &in, 1, NULL, NULL), SHOPFLOOR_USAGE, "outputs is NULL");
    FAILS(shopfloor_run(s, NULL, 0, NULL, &out), SHOPFLOOR_INPUT, "missing");
    FAILS(shopfloor_run(s, &in, 2, NULL, &out), SHOPFLOOR_USAGE, "2 inputs");
    FAILS(shopfloor_run(s, &in, SIZE_MAX, NULL, &out), SHOPFLOOR_USAGE, "inputs");
    const void *odd = (const char *)&in + 1;
    FAILS(shopfloor_run(s, odd, 1, NULL, &out), SHOPFLOOR_USAGE, "address");
    in.name = "picture";
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_INPUT, "picture");
    in.name = NULL;
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "NULL");
    in = image(one, 4, 63);
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "256 B");
    in = image(one, 4, SIZE_MAX / 4);
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "256 B");
    in = image(one, 3, 8);
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_INPUT, "shape");
    in = image(one, 65, 64);
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "65 dimensions");
    in = image(NULL, 4, 64);
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "the shape of input 'image' is NULL");
    const int64_t less[] = {-1, 1, 8, 8};
    in = image(less, 4, 64);
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "negative");
    const int64_t much[] = {INT64_MAX, INT64_MAX, 8, 8};
    in = image(much, 4, 64);
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "smaller");
    in = image(one, 4, 64);
    in.data = NULL;
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "the data of input 'image' is NULL");
    in = image(one, 4, 64);
    in.dtype = SHOPFLOOR_INT32;
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_INPUT, "i32");
    in.dtype = SHOPFLOOR_OTHER;
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "element type");
    in.dtype = -5;
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "-5");
    in.dtype = SHOPFLOOR_STRING;
    FAILS(shopfloor_run(s, &in, 1, NULL, &out), SHOPFLOOR_USAGE, "texts");
    /* Elements between two addresses are read all the same. */
    char *odd_floats = malloc(64 * sizeof(float) + 1);
    memcpy(odd_floats + 1, pixels, 64 * sizeof(float));
    in = image(one, 4, 64);
    in.data = odd_floats + 1;
    OK(shopfloor_run(s, &in, 1, NULL, &out));
    shopfloor_outputs_free(out);
    free(odd_floats);
    /* No items at all. */
    const int64_t none[] = {0, 1, 8, 8};
    in = image(none, 4, 0);
    in.data = NULL;
    shopfloor_error *e = shopfloor_run(s, &in, 1, NULL, &out);
    CHECK(e || out);
    shopfloor_error_free(e);
    shopfloor_outputs_free(out);
}

static void giving_up(const shopfloor_session *s) {
    shopfloor_outputs *out;
    shopfloor_input in = image(one, 4, 64);
    shopfloor_cancel *c = shopfloor_cancel_new();
    shopfloor_call call = {c, 10.0};
    OK(shopfloor_run(s, &in, 1, &call, &out));
    shopfloor_outputs_free(out);
    shopfloor_cancel_now(c);
    FAILS(shopfloor_run(s, &in, 1, &call, &out), SHOPFLOOR_CANCELLED, "cancelled");
    CHECK(!out);
    call.cancel = NULL;
    call.deadline_s = 1e-9;
    FAILS(shopfloor_run(s, &in, 1, &call, &out), SHOPFLOOR_REFUSED, "refused");
    call.deadline_s = -1;
    FAILS(shopfloor_run(s, &in, 1, &call, &out), SHOPFLOOR_USAGE, "deadline");
    call.deadline_s = NAN;
    FAILS(shopfloor_run(s, &in, 1, &call, &out), SHOPFLOOR_USAGE, "deadline");
    call.deadline_s = 1e300;
    FAILS(shopfloor_run(s, &in, 1, &call, &out), SHOPFLOOR_USAGE, "deadline");
    call.deadline_s = 0;
    OK(shopfloor_run(s, &in, 1, &call, &out));
    shopfloor_outputs_free(out);
    shopfloor_cancel_free(c);
}

static void planning(const shopfloor_session *s) {
    char *plan, *reasons;
    shopfloor_size size = {"batch", 4};
    OK(shopfloor_session_plan(s, &size, 1, 0, &plan));
    OK(shopfloor_session_plan(s, NULL, 0, 1, &reasons));
    CHECK(strstr(plan, "digits_cnn") && strlen(plan) > 200 && strlen(reasons) > strlen(plan));
    shopfloor_text_free(plan);
    shopfloor_text_free(reasons);
    size.name = "nobody";
    FAILS(shopfloor_session_plan(s, &size, 1, 0, &plan), SHOPFLOOR_USAGE, "nobody");
    size.name = NULL;
    FAILS(shopfloor_session_plan(s, &size, 1, 0, &plan), SHOPFLOOR_USAGE, "NULL");
    size.name = "batch", size.size = -3;
    shopfloor_error *e = shopfloor_session_plan(s, &size, 1, 0, &plan);
    CHECK(e && !plan);
    shopfloor_error_free(e);
    FAILS(shopfloor_session_plan(s, &size, 99, 0, &plan), SHOPFLOOR_USAGE, "99 sizes");
    FAILS(shopfloor_session_plan(s, NULL, 1, 0, &plan), SHOPFLOOR_USAGE, "NULL");
    FAILS(shopfloor_session_plan(s, NULL, 0, 0, NULL), SHOPFLOOR_USAGE, "NULL");
}

static void *many(void *s) {
    for (int i = 0; i < 50; i++) {
        shopfloor_outputs *out;
        shopfloor_input in = image(one, 4, 64);
        OK(shopfloor_run(s, &in, 1, NULL, &out));
        shopfloor_outputs_free(out);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(strchr(shopfloor_version(), '.'));
    CHECK(shopfloor_error_code(NULL) == SHOPFLOOR_OK && !*shopfloor_error_message(NULL));
    CHECK(shopfloor_dtype_bits(SHOPFLOOR_FLOAT16) == 16 && shopfloor_dtype_bits(99) == 0);
    for (int i = 0; i < 3 * 64; i++) pixels[i] = (float)(i * 7 % 17) / 17;
    opening(argv[1]);

    shopfloor_options *o = shopfloor_options_new();
    OK(shopfloor_options_set_threads(o, 2));
    OK(shopfloor_options_set_device(o, "cpu"));
    OK(shopfloor_options_set_precision(o, "f32"));
    OK(shopfloor_options_set_memory(o, 1 << 30));
    OK(shopfloor_options_set_dim(o, "batch", 1, 8));
    OK(shopfloor_options_set_queue(o, 4, 100));
    shopfloor_session *s;
    OK(shopfloor_session_open_file(argv[1], o, &s));
    shopfloor_options_free(o);
    described(s);
    running(s);
    wrong_inputs(s);
    giving_up(s);
    planning(s);
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) CHECK(!pthread_create(&threads[i], NULL, many, s));
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    shopfloor_session_free(s);

    shopfloor_session_free(NULL);
    shopfloor_outputs_free(NULL);
    shopfloor_options_free(NULL);
    shopfloor_cancel_free(NULL);
    shopfloor_cancel_now(NULL);
    shopfloor_error_free(NULL);
    shopfloor_text_free(NULL);
    puts("all is well");
    return 0;
}
