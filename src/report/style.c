#include "report/style.h"
#include "report/plot/canvas.h"

/* ---- style ---- */

static const char style[] =
    "*{box-sizing:border-box}\n"
    "html{font:16px/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Liberation "
    "Sans\",sans-serif;"
    "background:var(--paper);color:var(--text);-webkit-text-size-adjust:100%;scroll-padding-top:"
    "1rem}\n"
    "body{margin:0;overflow-wrap:break-word}\n"
    "a{color:var(--s1);text-underline-offset:.15em}\n"
    ".page{display:grid;grid-template-columns:15rem minmax(0,50rem);gap:0 3rem;max-width:70rem;"
    "margin:0 auto;padding:1.5rem}\n"
    "header,main{grid-column:2}\n"
    "nav{grid-column:1;grid-row:1/span "
    "2;position:sticky;top:1.5rem;align-self:start;max-height:calc(100vh - 3rem);overflow:auto;"
    "font-size:.875rem;line-height:1.4}\n"
    "nav summary{font-weight:600;list-style:none;margin-bottom:.5rem}\n"
    "nav summary::-webkit-details-marker{display:none}\n"
    "nav h2{font-size:.8rem;font-weight:600;color:var(--muted);margin:1rem 0 "
    ".25rem;border:0;padding:0}\n"
    "nav ul{list-style:none;margin:0;padding:0}\n"
    "nav a{display:block;padding:.15rem 0;color:var(--text);text-decoration:none}\n"
    "nav a:hover{text-decoration:underline}\n"
    "h1{font-size:2rem;line-height:1.2;margin:0 0 .5rem;text-wrap:balance}\n"
    "h2{font-size:1.5rem;line-height:1.25;margin:3.5rem 0 0;padding-top:1rem;"
    "border-top:2px solid var(--text)}\n"
    "h3{font-size:1.25rem;line-height:1.3;margin:2.5rem 0 .5rem}\n"
    "h4{font-size:1rem;margin:1.5rem 0 .25rem}\n"
    "p{margin:.5rem 0}\n"
    ".muted,figcaption p,.note{color:var(--muted);font-size:.875rem}\n"
    ".note{margin:.35rem 0 0}\n"
    "dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.15rem "
    "1.25rem;margin:1rem 0}\n"
    "dt{color:var(--muted)}dd{margin:0}\n"
    "code,pre,kbd,.m{font-family:ui-monospace,SFMono-Regular,Menlo,\"Liberation Mono\",monospace}\n"
    ".run{display:flex;gap:.5rem;align-items:flex-start;background:var(--shade);border-radius:6px;"
    "padding:.5rem .5rem .5rem .75rem;margin:.5rem 0}\n"
    ".run "
    "code{flex:1;font-size:.8125rem;line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere}\n"
    "button{font:inherit;font-size:.8125rem;color:var(--text);background:var(--paper);"
    "border:1px solid var(--grid);border-radius:5px;padding:.15rem .6rem;cursor:pointer}\n"
    "button:hover{border-color:var(--axis)}\n"
    "button:focus-visible,a:focus-visible,summary:focus-visible{outline:2px solid "
    "var(--s1);outline-offset:2px}\n"
    "#theme{position:absolute;top:1.25rem;right:1.25rem}\n"
    ".block{margin:1.5rem 0}\n"
    ".title{font-weight:600;font-size:.9375rem;margin:0 0 .4rem}\n"
    ".scroll{overflow-x:auto;-webkit-overflow-scrolling:touch}\n"
    "table{border-collapse:collapse;font-size:.875rem;line-height:1.4;font-variant-numeric:tabular-"
    "nums}\n"
    "thead th{border-top:2px solid var(--text);border-bottom:1px solid "
    "var(--axis);vertical-align:bottom}\n"
    "tbody tr:last-child td{border-bottom:2px solid var(--text)}\n"
    "td{border-bottom:1px solid var(--grid);vertical-align:top}\n"
    "th,td{padding:.35rem .65rem;text-align:left}\n"
    "th:first-child,td:first-child{padding-left:.25rem}\n"
    "th.r,td.r{text-align:right}th.c,td.c{text-align:center}\n"
    "td.r,.n{white-space:nowrap}\n"
    ".tall{max-height:34rem;overflow-y:auto}.tall thead "
    "th{position:sticky;top:0;background:var(--paper)}\n"
    "th button{all:unset;cursor:pointer;font-weight:600}\n"
    "th button:focus-visible{outline:2px solid var(--s1);outline-offset:2px}\n"
    "th small,td small{color:var(--muted);font-weight:400;font-size:.8em}\n"
    "th small{display:block}\n"
    "td small{margin-left:.45em;display:inline-block;text-align:left}\n"
    "td a{color:inherit;text-decoration-color:var(--axis)}\n"
    "td .k{display:inline-block;text-align:left}\n"
    "th[aria-sort=ascending] button::after{content:\" \\2191\"}\n"
    "th[aria-sort=descending] button::after{content:\" \\2193\"}\n"
    "sup{font-size:.7em;line-height:0;color:var(--muted);margin-left:.15em}\n"
    "figure{margin:1.5rem 0}\n"
    "figcaption{margin-top:.35rem}\n"
    "svg{display:block;width:100%;height:auto;max-width:50rem}\n"
    "svg.narrow{display:none}\n"
    "svg text{font-family:\"Liberation Sans\",Arial,Helvetica,sans-serif}\n"
    ".b{font-weight:bold}.i{font-style:italic}.pale{opacity:.3}.f-none{fill:none}\n"
    ".h{cursor:default}.h:hover{opacity:.75}\n"
    ".fig{border-bottom:1px dotted var(--axis);cursor:help}\n"
    "details{margin:.75rem 0}\n"
    "details>summary{cursor:pointer;color:var(--muted);font-size:.875rem}\n"
    ".failed{border-left:3px solid var(--s2);padding-left:.75rem}\n"
    "#tip{position:absolute;z-index:9;max-width:20rem;padding:.3rem .55rem;border-radius:5px;"
    "font-size:.8125rem;line-height:1.35;background:var(--text);color:var(--paper);pointer-events:"
    "none}\n"
    "@media(max-width:60rem){.page{display:block;padding:1rem}"
    "nav{position:static;max-height:none;margin-top:1.5rem;border:1px solid "
    "var(--grid);border-radius:6px;"
    "padding:.75rem 1rem}nav summary{margin:0;cursor:pointer;list-style:revert}nav "
    "details{margin:0}}\n"
    "@media(max-width:34rem){h1{font-size:1.6rem;padding-right:4rem}svg.wide{display:none}svg."
    "narrow{display:block}"
    "dl{display:block}dd{margin:0 0 .5rem}}\n"
    "@media print{nav,button,#tip{display:none}.page{display:block}}\n";

static void print_colours(FILE *file, const char *selector, bool dark)
{
    fprintf(file, "%s{color-scheme:%s;", selector, dark ? "dark" : "light");
    for (int ink = ECH__INK_PAPER; ink < ECH__INK_COUNT; ink++)
        fprintf(file, "--%s:#%06x;", ech__ink_name((ech__ink)ink),
                (unsigned)ech__ink_colour((ech__ink)ink, dark));
    fputs("}", file);
}

void ech__page_style(FILE *file)
{
    print_colours(file, ":root", false);
    fputs("\n@media(prefers-color-scheme:dark){", file);
    print_colours(file, ":root:not([data-theme=light])", true);
    fputs("}\n", file);
    print_colours(file, ":root[data-theme=dark]", true);
    fputc('\n', file);
    for (int ink = ECH__INK_PAPER; ink < ECH__INK_COUNT; ink++)
        fprintf(file, ".f-%s{fill:var(--%s)}.l-%s{stroke:var(--%s)}", ech__ink_name((ech__ink)ink),
                ech__ink_name((ech__ink)ink), ech__ink_name((ech__ink)ink),
                ech__ink_name((ech__ink)ink));
    fputc('\n', file);
    fputs(style, file);
}

/* ---- script: the page can be read without it ---- */

static const char theme_script[] =
    "'use strict';\n"
    "(function(){\n"
    "const root=document.documentElement,button=document.getElementById('theme');\n"
    "const stored=()=>{try{return localStorage.getItem('theme')}catch(e){return null}};\n"
    "const dark=()=>root.dataset.theme?root.dataset.theme==='dark':"
    "matchMedia('(prefers-color-scheme: dark)').matches;\n"
    "const label=()=>{button.textContent=dark()?'Light':'Dark';"
    "button.setAttribute('aria-label',dark()?'Switch to light colours':'Switch to dark "
    "colours')};\n"
    "if(stored()==='dark'||stored()==='light')root.dataset.theme=stored();\n"
    "button.hidden=false;label();\n"
    "button.addEventListener('click',()=>{root.dataset.theme=dark()?'light':'dark';"
    "try{localStorage.setItem('theme',root.dataset.theme)}catch(e){}label()});\n"
    "})();\n";

static const char script[] =
    "'use strict';\n"
    "(function(){\n"
    "const root=document.documentElement;\n"
    "const wide=matchMedia('(min-width:60.01rem)'),menu=document.querySelector('nav details');\n"
    "const fold=()=>{menu.open=wide.matches};wide.addEventListener('change',fold);fold();\n"
    "for(const b of document.querySelectorAll('.run button')){b.hidden=false;"
    "b.addEventListener('click',async()=>{const text=b.previousElementSibling.textContent;"
    "try{await navigator.clipboard.writeText(text)}catch(e){"
    "const area=document.createElement('textarea');area.value=text;document.body.append(area);"
    "area.select();document.execCommand('copy');area.remove()}"
    "b.textContent='Copied';setTimeout(()=>{b.textContent='Copy'},1500)})}\n"
    "const "
    "key=cell=>cell.dataset.v!==undefined?parseFloat(cell.dataset.v):cell.textContent.trim();\n"
    "const order=(a,b)=>{const x=typeof a==='number',y=typeof b==='number';"
    "return x&&y?a-b:x!==y?(x?-1:1):a.localeCompare(b,undefined,{numeric:true})};\n"
    "for(const b of document.querySelectorAll('th button'))b.addEventListener('click',()=>{"
    "const th=b.closest('th'),body=b.closest('table').tBodies[0],i=th.cellIndex;"
    "const down=th.getAttribute('aria-sort')==='ascending';"
    "for(const other of th.parentNode.cells)other.removeAttribute('aria-sort');"
    "th.setAttribute('aria-sort',down?'descending':'ascending');"
    "body.append(...[...body.rows].sort((p,q)=>(down?-1:1)*order(key(p.cells[i]),key(q.cells[i]))))"
    "});\n"
    "const "
    "tip=document.createElement('div');tip.id='tip';tip.hidden=true;document.body.append(tip);\n"
    "for(const g of document.querySelectorAll('.h')){const t=g.firstElementChild;"
    "g.dataset.tip=t.textContent;t.remove()}\n"
    "for(const f of "
    "document.querySelectorAll('.fig[title]')){f.dataset.tip=f.title;f.removeAttribute('title')}\n"
    "const show=e=>{const g=e.target.closest('[data-tip]');tip.hidden=!g;if(!g)return;"
    "tip.textContent=g.dataset.tip;const w=tip.offsetWidth,x=e.pageX+12,"
    "most=root.clientWidth+scrollX-w-8;tip.style.left=Math.max(8,Math.min(x,most))+'px';"
    "tip.style.top=(e.pageY-tip.offsetHeight-10)+'px'};\n"
    "document.addEventListener('pointermove',show);document.addEventListener('pointerdown',show);\n"
    "document.addEventListener('keydown',e=>{if(e.key==='Escape')tip.hidden=true});\n"
    "})();\n";

void ech__page_theme_script(FILE *file)
{
    fputs(theme_script, file);
}

void ech__page_script(FILE *file)
{
    ech__page_theme_script(file);
    fputs(script, file);
}
