/* The files of src/lab/page, which the build turns into C. */
#pragma once

extern const char ech__live_html[], ech__live_css[], ech__live_js[];
