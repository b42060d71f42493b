/* Makes the search work when the manual is opened from a file.
 *
 * The theme searches in a Worker, and browsers start none for a page at a file: address. There, this class takes the
 * place of Worker and runs the script in a hidden iframe. It can what the theme's script needs: messages in both
 * directions. importScripts is missing, which the theme calls only for languages other than English.
 */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const iframe = document.createElement("iframe");
      iframe.hidden = true;
      this.started = new Promise((resolve, reject) => {
        iframe.onload = () => {
          const inner = iframe.contentWindow;
          inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inner.document.createElement("script");
          script.src = new URL(address, location.href);
          script.onload = () => resolve(inner);
          script.onerror = () => reject(new Error(`cannot load ${script.src}`));
          inner.document.head.append(script);
        };
      });
      document.body.append(iframe);
    }

    async postMessage(data) {
      const inner = await this.started;
      inner.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
