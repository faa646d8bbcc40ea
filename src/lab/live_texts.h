/* The files of src/lab/page, which the build turns into C. */
#ifndef ECH_LAB_LIVE_TEXTS_H
#define ECH_LAB_LIVE_TEXTS_H

extern const char ech__live_html[], ech__live_css[], ech__live_js[];

#endif
