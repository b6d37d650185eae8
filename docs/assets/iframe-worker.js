// Search works from disk: browsers refuse to start a Worker there, so the worker's script runs in a hidden frame instead.
// The theme's script looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = `<script>
        self.postMessage = data => parent.postMessage(data, "*")
        self.importScripts = (...urls) => Promise.all(urls.map(url => new Promise((resolve, reject) => {
          const script = document.createElement("script")
          Object.assign(script, { src: url, onload: resolve, onerror: reject })
          document.body.append(script)
        })))
      </scr` + `ipt><body><script src="${new URL(url, location)}"></scr` + `ipt>`
      this.frame = frame
      this.ready = new Promise(resolve => { frame.onload = resolve })
      addEventListener("message", event => {
        if (event.source === frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      document.body.append(frame)
    }

    postMessage(data) {
      const send = () => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      this.ready.then(send)
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
