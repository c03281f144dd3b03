// The search over all episodes: its pages are scripts beside this file, because a page on a disk may read no files.
// They are loaded one after the other, when somebody searches, and forgotten once they have been looked through.
{
  const SHOWN = 200, FOLDER = "search";
  const waiting = new Map();
  window.sluiceFound = (name, content) => { if (waiting.has(name)) waiting.get(name).resolve(content); };
  const load = (name) => {
    if (!waiting.has(name)) {
      const script = document.createElement("script");
      const one = {};
      one.promise = new Promise((resolve, reject) => Object.assign(one, { resolve, reject }));
      waiting.set(name, one);
      const end = (why) => {
        script.remove();
        waiting.delete(name);
        one.reject(new Error(why));  // where it has called back, that stands
      };
      const file = `${FOLDER}/${name}.js`;
      script.addEventListener("load", () => end(`${file} is damaged`));
      script.addEventListener("error", () => end(`${file} is not beside this file, where it was made`));
      script.src = file;
      document.head.append(script);
    }
    return waiting.get(name).promise;
  };
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const numbers = (ranges) => ranges.split(",").flatMap((range) => {
    const [first, last = first] = range.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, at) => first + at);
  });
  // Times are the reader's, as on the rest of the page; titles have them in UTC.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const two = (number) => String(number).padStart(2, "0");
  const when = (seconds) => {
    const time = new Date(seconds * 1000);
    const parts = [time.getMonth() + 1, time.getDate(), time.getHours(), time.getMinutes(), time.getSeconds()];
    const [month, day, hour, minute, second] = parts.map(two);
    return `${time.getFullYear()}-${month}-${day} ${hour}:${minute}:${second}`;
  };
  const inUtc = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const lasting = (seconds) => {
    if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
    const whole = Math.round(seconds);
    const units = [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]];
    const [unit, size, below, part] = units.find(([, least]) => whole >= least);
    const rest = Math.floor((whole % size) / part);
    return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${below}` : ""}`;
  };
  const cut = (name) => {
    const shown = name === null ? "(nobody yet)" : name === "" ? "(none)" : name;
    if (shown.length <= 44) return element("span", { className: "name", textContent: shown });
    return element("span", { className: "name", title: shown, textContent: `${shown.slice(0, 21)}…${shown.slice(-21)}` });
  };
  const HEADS = ["user", "client-id", "by which rule", "limit", "broker", `from (${zone})`, "lasted", "muted", "requests"];
  const lineOf = ([begin, end, user, clientId, broker, kind, rule, mode, mutedMs, throttled, limit]) => {
    const by = element("td", {}, cut(rule ?? "no rule"), " ", element("small", { textContent: mode === "enforce" ? kind : `${kind}, ${mode}` }));
    const began = element("span", { textContent: when(begin), title: inUtc(begin) });
    const cells = [limit || "–", broker, began, lasting(end - begin), lasting(mutedMs / 1000), throttled];
    return element("tr", {}, element("td", {}, cut(user)), element("td", {}, cut(clientId)), by,
      ...cells.map((content) => element("td", { className: "n" }, content)));
  };
  for (const place of document.querySelectorAll("div.search")) {
    const field = (name, type, placeholder) => {
      const input = element("input", { className: "find", type, placeholder, name });
      input.setAttribute("aria-label", `${name}: ${placeholder}`);
      return input;
    };
    const user = field("user", "search", "user has"), clientId = field("client-id", "search", "client-id has");
    const rule = field("rule", "search", "rule has");
    const from = field("from", "text", `from 2026-01-31 12:00 (${zone})`), to = field("to", "text", `to 2026-01-31 13:00 (${zone})`);
    const button = element("button", { className: "find", type: "button", textContent: `search all ${place.dataset.of}` });
    const said = element("p", { className: "says", textContent: "" });
    said.setAttribute("role", "status");
    const body = element("tbody");
    const head = element("tr", {}, ...HEADS.map((name, at) => element("th", { textContent: name, className: at > 2 ? "n" : "" })));
    const found = element("div", { className: "scroll", hidden: true }, element("table", {}, element("thead", {}, head), body));
    const more = element("button", { className: "find", type: "button", textContent: `the next ${SHOWN}`, hidden: true });
    place.replaceChildren(user, " ", clientId, " ", rule, " ", from, " ", to, " ", button, said, found, more);
    let index = null, running = 0;
    const has = (name, wanted) => (name ?? "").toLowerCase().includes(wanted);
    const asUnix = (input, other) => {
      const text = input.value.trim();
      if (!text) return other;
      const plain = text.replace(/\s*(Z|UTC)$/i, "").replace(" ", "T");
      const time = Date.parse(`${plain}${plain.includes("T") ? "" : "T00:00"}${/(Z|UTC)$/i.test(text) ? "Z" : ""}`);
      if (Number.isNaN(time)) {
        throw new Error(`${text} is no time: write it like 2026-01-31 or 2026-01-31 12:00, in ${zone}, or 2026-01-31 12:00 UTC`);
      }
      return time / 1000;
    };
    async function* matches(mine) {
      index ??= await load("index");
      const wanted = [user, clientId, rule].map((input) => input.value.trim().toLowerCase());
      const begin = asUnix(from, -Infinity), end = asUnix(to, Infinity);
      let pages = index.pages.keys();
      if (wanted[0] || wanted[1]) {
        const chosen = new Set();
        for (let part = 0; part < index.clients && running === mine; part += 1) {
          said.textContent = `Looking for clients: ${part + 1} of ${index.clients} pages`;
          for (const [name, id, , , ranges] of await load(`clients-${part}`)) {
            if (has(name, wanted[0]) && has(id, wanted[1])) for (const page of numbers(ranges)) chosen.add(page);
          }
        }
        pages = [...chosen].sort((one, other) => one - other);
      }
      const due = [...pages].filter((page) => index.pages[page][0] < end && index.pages[page][1] > begin);
      for (const [at, page] of due.entries()) {
        if (running !== mine) return;
        said.textContent = `Looking through page ${at + 1} of ${due.length}`;
        for (const row of await load(`page-${page}`)) {
          const names = has(row[2], wanted[0]) && has(row[3], wanted[1]) && has(row[6], wanted[2]);
          if (names && row[0] < end && row[1] > begin) yield row;
        }
      }
    }
    const show = async (rows, mine, before) => {
      let count = before;
      try {
        while (count < before + SHOWN) {
          const { value, done } = await rows.next();
          if (running !== mine) return;
          if (done) {
            more.hidden = true;
            said.textContent = count ? `${count} found; these are all of them.` : "None found.";
            return;
          }
          body.append(lineOf(value));
          found.hidden = false;
          count += 1;
        }
        said.textContent = `The first ${count} in the order of time.`;
        more.hidden = false;
        more.onclick = () => { more.hidden = true; show(rows, mine, count); };
      } catch (error) {
        if (running === mine) said.textContent = `It cannot be searched: ${error.message}`;
      }
    };
    const search = () => {
      running += 1;
      body.replaceChildren();
      found.hidden = more.hidden = true;
      show(matches(running), running, 0);
    };
    button.addEventListener("click", search);
    for (const input of [user, clientId, rule, from, to]) {
      input.addEventListener("keydown", (event) => { if (event.key === "Enter") search(); });
    }
  }
}
