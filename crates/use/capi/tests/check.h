/* What the test programs share. */
#include "shopfloor.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                      \
    do {                                                                 \
        if (!(what)) {                                                   \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what);   \
            exit(1);                                                     \
        }                                                                \
    } while (0)

/* Asserts that nothing failed. */
static void ok(shopfloor_error *e, int line) {
    if (e) {
        fprintf(stderr, "line %d: %d %s\n", line, shopfloor_error_code(e), shopfloor_error_message(e));
        exit(1);
    }
}
#define OK(call) ok((call), __LINE__)

/* Asserts that something failed with a code and a word. */
static void fails(shopfloor_error *e, int code, const char *word, int line) {
    if (!e || shopfloor_error_code(e) != code || !strstr(shopfloor_error_message(e), word)) {
        fprintf(stderr, "line %d: %d '%s' and not %d with '%s'\n", line, shopfloor_error_code(e),
                shopfloor_error_message(e), code, word);
        exit(1);
    }
    if (strchr(shopfloor_error_message(e), '\n')) {
        fprintf(stderr, "line %d: more than a sentence: %s\n", line, shopfloor_error_message(e));
        exit(1);
    }
    shopfloor_error_free(e);
}
#define FAILS(call, code, word) fails((call), (code), (word), __LINE__)
