/* Two additions to the search of the site. The pages load this file before the script of the theme.
 *
 * 1. A question may be a whole sentence. The words that every page has are left out, and endings are cut off, since the
 *    search looks for words that begin with what it gets: "why was a step refused" becomes "step refus".
 * 2. The search works when the site is opened from a folder (file://), where browsers start no workers. There a hidden
 *    frame runs the worker's script, and messages pass by direct calls, as the frame belongs to this page. */
(function () {
  "use strict";
  const COMMON = new Set(
    ("a an and are as at be been being but by can could did do does for from get had has have how i if in into is it " +
      "its me my not of on or should so than that the their them then there these they this to was we were what when " +
      "where which who why will with would you your").split(" "));
  const ENDINGS = /(?:ies|ied|ying|y|ing|ings|ed|es|s|e)$/;

  function shortened(word) {
    const stem = word.replace(ENDINGS, "");
    return /^[a-z]+$/.test(word) && stem.length >= 4 ? stem : word;
  }

  /* Returns what the search gets for a question. Questions in quotes and with the signs of a query stay as they are. */
  function question(text) {
    if (typeof text !== "string" || /["+*~^:]/.test(text)) return text;
    const words = text.toLowerCase().replace(/[?!.,;]+(?=\s|$)/g, "").split(/\s+/).filter(Boolean);
    const asked = words.filter((word) => !COMMON.has(word));
    return (asked.length ? asked : words).map(shortened).join(" ");
  }

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.waiting = []; // messages that came before the script was loaded
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data: data }));
      const script = inner.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      script.onerror = () => this.dispatchEvent(new Event("error"));
      inner.document.body.appendChild(script);
    }

    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
        return;
      }
      const inner = this.frame.contentWindow;
      inner.dispatchEvent(new inner.MessageEvent("message", { data: data }));
    }
  }

  const Base = location.protocol === "file:" ? FrameWorker : window.Worker;
  window.Worker = class extends Base {
    postMessage(message, ...more) {
      const asks = message && message.type === 2; // the theme's kind of message for a question
      super.postMessage(asks ? { type: 2, data: question(message.data) } : message, ...more);
    }
  };
})();
