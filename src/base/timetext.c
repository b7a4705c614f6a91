/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times as text, UTC: ISO 8601, HTTP dates (RFC 9110) and the basic form that AWS signatures use. Every request writes
 * and reads some, so there is no strftime, no locale and no time zone database in here.
 *
 * Invariant 1: written years have four digits: a time outside 0001-01-01 … 9999-12-31 is written as the nearest end.
 * Invariant 2: a reader sets *ms only when the whole text is good; a day must exist in its month.
 * Second 60 (a leap second) is read as the first second of the next minute.
 * Memory: the caller's. Threads: any.
 */
#include "tarn/base.h"

#include <string.h>

#define MS_PER_S 1000
#define S_PER_DAY 86400
#define MS_PER_DAY ((int64_t)S_PER_DAY * MS_PER_S)
#define DAYS_TO_1970 719162 /* from 0001-01-01 */
#define DAYS_PER_400_YEARS 146097
#define YEAR_MAX 9999
#define DAYS_MAX 3652058 /* 9999-12-31 counted from 0001-01-01 */
#define MS_MIN (-(int64_t)DAYS_TO_1970 * MS_PER_DAY)
#define MS_MAX ((int64_t)(DAYS_MAX + 1 - DAYS_TO_1970) * MS_PER_DAY - 1)

typedef struct civil {
    int year;
    int month; /* 1 to 12 */
    int day;   /* 1 to 31 */
    int hour;
    int minute;
    int second;
    int ms;
    int weekday; /* 0 = Monday */
} civil;

static const char day_names[7][4] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
static const char *const day_names_long[7] = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
static const char month_names[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const int days_before_month[13] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};

static bool is_leap(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Days from 0001-01-01 to the first of January of `year`. */
static int days_before_year(int year)
{
    int y = year - 1;
    return y * 365 + y / 4 - y / 100 + y / 400;
}

static int days_in_month(int year, int month)
{
    return days_before_month[month] - days_before_month[month - 1] + (month == 2 && is_leap(year) ? 1 : 0);
}

static civil civil_of(int64_t ms)
{
    int64_t clamped = ms < MS_MIN ? MS_MIN : (ms > MS_MAX ? MS_MAX : ms);
    int64_t since = clamped - MS_MIN; /* ≥ 0, so / and % need no care for signs */
    int days = (int)(since / MS_PER_DAY);
    int in_day = (int)(since % MS_PER_DAY);
    /* By the mean length of a year: leap days never run a whole day ahead of the mean, so the guess is right or one year short. */
    int year = (int)((int64_t)days * 400 / DAYS_PER_400_YEARS) + 1;
    while (days_before_year(year + 1) <= days) {
        year++;
    }
    int left = days - days_before_year(year);
    TARN_ASSERT(left >= 0);
    int month = 1;
    while (left >= days_in_month(year, month)) {
        left -= days_in_month(year, month);
        month++;
    }
    TARN_ASSERT(month <= 12 && year <= YEAR_MAX);
    int in_s = in_day / MS_PER_S;
    return (civil){
        .year = year,
        .month = month,
        .day = left + 1,
        .hour = in_s / 3600,
        .minute = in_s / 60 % 60,
        .second = in_s % 60,
        .ms = in_day % MS_PER_S,
        .weekday = days % 7, /* 0001-01-01 was a Monday */
    };
}

/* False when a field is out of range. */
static bool ms_of(const civil *c, int64_t *ms)
{
    if (c->year < 1 || c->year > YEAR_MAX || c->month < 1 || c->month > 12 || c->day < 1 || c->day > days_in_month(c->year, c->month) ||
        c->hour > 23 || c->minute > 59 || c->second > 60) {
        return false;
    }
    int days = days_before_year(c->year) + days_before_month[c->month - 1] + (c->month > 2 && is_leap(c->year) ? 1 : 0) + c->day - 1;
    int64_t seconds = (int64_t)c->hour * 3600 + c->minute * 60 + c->second;
    *ms = (int64_t)(days - DAYS_TO_1970) * MS_PER_DAY + seconds * MS_PER_S + c->ms;
    return true;
}

/* ------------------------------------------------------------------ writing */
static char *put2(char *p, int v)
{
    p[0] = (char)('0' + v / 10);
    p[1] = (char)('0' + v % 10);
    return p + 2;
}

static char *put4(char *p, int v)
{
    return put2(put2(p, v / 100), v % 100);
}

static char *put_name(char *p, const char name[4])
{
    memcpy(p, name, 3);
    return p + 3;
}

static char *put_char(char *p, char c)
{
    *p = c;
    return p + 1;
}

static char *put_clock(char *p, const civil *c)
{
    p = put_char(put2(p, c->hour), ':');
    p = put_char(put2(p, c->minute), ':');
    return put2(p, c->second);
}

static char *put_iso_seconds(char *p, const civil *c)
{
    p = put_char(put4(p, c->year), '-');
    p = put_char(put2(p, c->month), '-');
    p = put_char(put2(p, c->day), 'T');
    return put_clock(p, c);
}

void tarn_sb_iso8601_ms(tarn_sb *b, int64_t ms)
{
    civil c = civil_of(ms);
    char text[24];
    char *p = put_char(put_iso_seconds(text, &c), '.');
    p = put_char(p, (char)('0' + c.ms / 100));
    p = put_char(put2(p, c.ms % 100), 'Z');
    tarn_sb_bytes(b, text, (size_t)(p - text));
}

void tarn_sb_iso8601_s(tarn_sb *b, int64_t ms)
{
    civil c = civil_of(ms);
    char text[20];
    char *p = put_char(put_iso_seconds(text, &c), 'Z');
    tarn_sb_bytes(b, text, (size_t)(p - text));
}

void tarn_sb_http_date(tarn_sb *b, int64_t ms)
{
    civil c = civil_of(ms);
    char text[29];
    char *p = put_name(text, day_names[c.weekday]);
    p = put_char(put_char(p, ','), ' ');
    p = put_char(put2(p, c.day), ' ');
    p = put_char(put_name(p, month_names[c.month - 1]), ' ');
    p = put_char(put4(p, c.year), ' ');
    p = put_char(put_clock(p, &c), ' ');
    p = put_name(p, "GMT");
    tarn_sb_bytes(b, text, (size_t)(p - text));
}

void tarn_sb_amz_date(tarn_sb *b, int64_t ms)
{
    civil c = civil_of(ms);
    char text[16];
    char *p = put2(put2(put4(text, c.year), c.month), c.day);
    p = put_char(p, 'T');
    p = put_char(put2(put2(put2(p, c.hour), c.minute), c.second), 'Z');
    tarn_sb_bytes(b, text, (size_t)(p - text));
}

/* ------------------------------------------------------------------ reading */
/* A cursor that remembers its first failure, so that a format reads as one chain of steps. */
typedef struct cursor {
    tarn_str s;
    bool bad;
} cursor;

static int take_digits(cursor *c, size_t n)
{
    uint64_t v = 0;
    if (c->bad || c->s.n < n || !tarn_str_to_u64(tarn_str_sub(c->s, 0, n), &v)) {
        c->bad = true;
        return 0;
    }
    c->s = tarn_str_sub(c->s, n, c->s.n);
    return (int)v;
}

static bool peek_char(const cursor *c, char want)
{
    return !c->bad && c->s.n > 0 && c->s.p[0] == want;
}

static bool skip_char(cursor *c, char want)
{
    if (!peek_char(c, want)) {
        return false;
    }
    c->s = tarn_str_sub(c->s, 1, c->s.n);
    return true;
}

static void take_text(cursor *c, const char *want)
{
    if (c->bad || !tarn_str_starts(c->s, want)) {
        c->bad = true;
        return;
    }
    c->s = tarn_str_sub(c->s, strlen(want), c->s.n);
}

static int take_name(cursor *c, const char (*names)[4], int count)
{
    for (int i = 0; i < count; i++) {
        if (!c->bad && tarn_str_starts(c->s, names[i])) {
            take_text(c, names[i]);
            return i;
        }
    }
    c->bad = true;
    return 0;
}

static void take_clock(cursor *c, civil *t)
{
    t->hour = take_digits(c, 2);
    take_text(c, ":");
    t->minute = take_digits(c, 2);
    take_text(c, ":");
    t->second = take_digits(c, 2);
}

/* Any number of digits; what is finer than a millisecond is cut off. */
static int take_fraction_ms(cursor *c)
{
    int ms = 0;
    size_t n = 0;
    while (n < c->s.n && c->s.p[n] >= '0' && c->s.p[n] <= '9') {
        ms = n < 3 ? ms * 10 + (c->s.p[n] - '0') : ms;
        n++;
    }
    if (n == 0) {
        c->bad = true;
    }
    for (size_t i = n; i < 3; i++) {
        ms *= 10;
    }
    c->s = tarn_str_sub(c->s, n, c->s.n);
    return ms;
}

/* Minutes east of Greenwich. */
static int take_zone_minutes(cursor *c)
{
    if (skip_char(c, 'Z') || skip_char(c, 'z')) {
        return 0;
    }
    bool west = skip_char(c, '-');
    if (!west) {
        take_text(c, "+");
    }
    int hours = take_digits(c, 2);
    take_text(c, ":");
    int minutes = take_digits(c, 2);
    if (hours > 23 || minutes > 59) {
        c->bad = true;
    }
    int east = hours * 60 + minutes;
    return west ? -east : east;
}

/* The whole text was taken and the time exists. */
static bool finish(const cursor *c, const civil *t, int zone_minutes, int64_t *ms)
{
    int64_t v;
    if (c->bad || c->s.n > 0 || !ms_of(t, &v)) {
        return false;
    }
    *ms = v - (int64_t)zone_minutes * 60 * MS_PER_S;
    return true;
}

bool tarn_parse_iso8601(tarn_str s, int64_t *ms)
{
    cursor c = {s, false};
    civil t = {0};
    int zone_minutes = 0;
    t.year = take_digits(&c, 4);
    take_text(&c, "-");
    t.month = take_digits(&c, 2);
    take_text(&c, "-");
    t.day = take_digits(&c, 2);
    if (!c.bad && c.s.n > 0) {
        if (!skip_char(&c, 't')) {
            take_text(&c, "T");
        }
        t.hour = take_digits(&c, 2);
        take_text(&c, ":");
        t.minute = take_digits(&c, 2);
        if (skip_char(&c, ':')) {
            t.second = take_digits(&c, 2);
            if (skip_char(&c, '.')) {
                t.ms = take_fraction_ms(&c);
            }
        }
        zone_minutes = take_zone_minutes(&c);
    }
    return finish(&c, &t, zone_minutes, ms);
}

bool tarn_parse_amz_date(tarn_str s, int64_t *ms)
{
    cursor c = {s, false};
    civil t = {0};
    t.year = take_digits(&c, 4);
    t.month = take_digits(&c, 2);
    t.day = take_digits(&c, 2);
    take_text(&c, "T");
    t.hour = take_digits(&c, 2);
    t.minute = take_digits(&c, 2);
    t.second = take_digits(&c, 2);
    take_text(&c, "Z");
    return finish(&c, &t, 0, ms);
}

/* Fri, 02 Jan 2026 03:04:05 GMT */
static bool parse_fixdate(tarn_str s, int64_t *ms)
{
    cursor c = {s, false};
    civil t = {0};
    (void)take_name(&c, day_names, 7);
    take_text(&c, ", ");
    t.day = take_digits(&c, 2);
    take_text(&c, " ");
    t.month = take_name(&c, month_names, 12) + 1;
    take_text(&c, " ");
    t.year = take_digits(&c, 4);
    take_text(&c, " ");
    take_clock(&c, &t);
    take_text(&c, " GMT");
    return finish(&c, &t, 0, ms);
}

/* A two-digit year that seems more than 50 years ahead is the last one in the past with these digits (RFC 9110 §5.6.7). */
static int full_year(int two_digits)
{
    int now = civil_of(tarn_now_ms()).year;
    int year = now - now % 100 + two_digits;
    return year > now + 50 ? year - 100 : year;
}

/* Friday, 02-Jan-26 03:04:05 GMT */
static bool parse_rfc850(tarn_str s, int64_t *ms)
{
    tarn_str name;
    tarn_str rest;
    if (!tarn_str_split(s, ',', &name, &rest)) {
        return false;
    }
    bool known = false;
    for (size_t i = 0; i < TARN_ARRAY_LEN(day_names_long); i++) {
        known = known || tarn_str_eqc(name, day_names_long[i]);
    }
    cursor c = {rest, !known};
    civil t = {0};
    take_text(&c, " ");
    t.day = take_digits(&c, 2);
    take_text(&c, "-");
    t.month = take_name(&c, month_names, 12) + 1;
    take_text(&c, "-");
    t.year = full_year(take_digits(&c, 2));
    take_text(&c, " ");
    take_clock(&c, &t);
    take_text(&c, " GMT");
    return finish(&c, &t, 0, ms);
}

/* Fri Jan  2 03:04:05 2026 */
static bool parse_asctime(tarn_str s, int64_t *ms)
{
    cursor c = {s, false};
    civil t = {0};
    (void)take_name(&c, day_names, 7);
    take_text(&c, " ");
    t.month = take_name(&c, month_names, 12) + 1;
    take_text(&c, " ");
    t.day = skip_char(&c, ' ') ? take_digits(&c, 1) : take_digits(&c, 2);
    take_text(&c, " ");
    take_clock(&c, &t);
    take_text(&c, " ");
    t.year = take_digits(&c, 4);
    return finish(&c, &t, 0, ms);
}

bool tarn_parse_http_date(tarn_str s, int64_t *ms)
{
    return parse_fixdate(s, ms) || parse_rfc850(s, ms) || parse_asctime(s, ms);
}
